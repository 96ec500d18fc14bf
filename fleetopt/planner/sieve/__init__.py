"""FleetSieve: which benchmark is worth running next, and when the fleet decision is certain.

Pure. Order of reading: `grid` (what can be measured), `evidence` (what is known of it), `usable`
(rates that hold a target), `allocation` (GPUs to classes), `decision` (how certain that is),
`selection` (what to measure next).
"""
