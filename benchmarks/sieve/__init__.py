"""Reference grids for FleetSieve: how they are made, and what policies do on them."""
