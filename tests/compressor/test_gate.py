"""The gate: what is recognised as what, raw and without fences, and what stays prose."""

from __future__ import annotations

import json

import pytest

from fleetopt.compressor.gate import Content, blocks, content_of

PYTHON = '''\
import heapq
from collections import Counter


class Queue:
    """Requests that wait.

    The first to come is the first to go, unless somebody is in a hurry.
    """

    def __init__(self, limit: int = 10) -> None:
        self.limit = limit  # more are refused
        self.waiting = []

    def push(self, request):
        # A long comment that reads like a sentence of prose, with words and a full stop.
        # And another one, since comments come in rows as a rule.
        if len(self.waiting) >= self.limit:
            raise OverflowError(f"{self.limit} wait already")
        heapq.heappush(self.waiting, request)
'''
TYPESCRIPT = """\
import { readFile } from 'fs/promises';

export interface Pool { name: string; replicas: number }

export async function load(path: string): Promise<Pool[]> {
  const text = await readFile(path, 'utf8');
  return JSON.parse(text).map((row: any) => ({ ...row, replicas: Number(row.replicas) }));
}
"""
C = """\
#include <stdio.h>

/* Prints the numbers from one to ten,
   each on a line of its own. */
int main(void)
{
    for (int i = 1; i <= 10; ++i)
        printf("%d\\n", i);
    return 0;
}
"""
JAVA = """\
package org.example;

public final class Pool {
    private final int replicas;

    public Pool(int replicas) {
        this.replicas = replicas;
    }

    @Override
    public String toString() { return "Pool of " + replicas; }
}
"""
GO = """\
package main

import "fmt"

func main() {
	total := 0
	for i := range 10 {
		total += i
	}
	fmt.Println("total", total)
}
"""
RUST = """\
use std::collections::HashMap;

pub fn count(words: &[&str]) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for word in words {
        *counts.entry(word.to_string()).or_insert(0) += 1;
    }
    counts
}
"""
SHELL = """\
#!/bin/sh
set -eu
for file in "$1"/*.log; do
    grep -c ERROR "$file" | sort -n >> counts.txt
done
sudo systemctl restart fleetopt && echo "done"
"""
SQL = """\
SELECT pool, COUNT(*) AS requests, AVG(ttft_s)
FROM requests r
JOIN pools p ON p.id = r.pool_id
WHERE r.arrival_s > 1700000000 AND p.name = 'short'
GROUP BY pool
ORDER BY requests DESC;
"""
YAML = """\
services:
  worker:
    image: fleetopt:latest
    command: ["worker"]
    environment:
      FLEETOPT_KAFKA__SERVERS: kafka:9092
    depends_on:
      - kafka
      - redis
"""
TOML = """\
[kafka]
servers = "localhost:9092"
topic = "requests"

[window]
slice_s = 60
retention_s = 3600
"""
CSS = """\
body {
  margin: 0 auto;
  max-width: 60rem;
}

.pool > .name { color: #333; font-weight: bold; }
"""
DIFF = '''\
diff --git a/pool.py b/pool.py
index 83db48f..bf269f4 100644
--- a/pool.py
+++ b/pool.py
@@ -1,5 +1,5 @@
 def replicas(load):
     """Return how many replicas a load needs, as a whole number that is large enough.

     A fraction of a replica can't be bought, so what is left over takes one more.
     """
-    return math.floor(load)
+    return math.ceil(load)
'''
TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/app/pool.py", line 12, in replicas
    return math.ceil(load)
TypeError: must be real number, not str
"""
HTML = """\
<!DOCTYPE html>
<html>
<head><title>Pools</title></head>
<body>
<ul class="pools"><li><a href="/short">short</a></li><li><a href="/long">long</a></li></ul>
</body>
</html>
"""
OBJECT = {"name": "short", "replicas": [1, 2, 3], "targets": {"ttft_s": 0.5, "note": None}}
MARKDOWN_TABLE = "| pool | replicas |\n| --- | --: |\n| short | 12 |\n| long | 3 |\n"
ASCII_TABLE = "+-------+----+\n| pool  | n  |\n+-------+----+\n| short | 12 |\n+-------+----+\n"
CSV = "pool,replicas,cost\nshort,12,18.40\nlong,3,9.20\nspare,1,3.07\n"
TSV = "pool\treplicas\tcost\nshort\t12\t18.40\nlong\t3\t9.20\nspare\t1\t3.07\n"
LOG = """\
2026-03-01 10:00:01,120 INFO fleetopt.worker: partition 3 assigned
2026-03-01 10:00:02,007 WARNING fleetopt.worker: no promise of traffic for 60 s
2026-03-01 10:00:09,981 ERROR fleetopt.redis: connection refused, trying again
"""
ACCESS_LOG = """\
10.0.0.7 - - [01/Mar/2026:10:00:01 +0000] "GET /plan HTTP/1.1" 200 512
10.0.0.9 - - [01/Mar/2026:10:00:04 +0000] "POST /compress HTTP/1.1" 503 17
"""
MATHS = "$$\nW_q = \\frac{C(c, \\rho)}{c \\mu - \\lambda}\n$$\n"
ENVIRONMENT = "\\begin{align}\na &= b + c \\\\\nd &= e\n\\end{align}\n"
BASE64 = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ\n" * 4
)
HEX = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\n" * 4
URLS = "".join(f"https://example.org/pools/short/replicas/{n}?window=3600\n" for n in range(5))

ATOMS = {
    "Python": (PYTHON, Content.CODE),
    "TypeScript": (TYPESCRIPT, Content.CODE),
    "C": (C, Content.CODE),
    "Java": (JAVA, Content.CODE),
    "Go": (GO, Content.CODE),
    "Rust": (RUST, Content.CODE),
    "shell": (SHELL, Content.CODE),
    "SQL": (SQL, Content.CODE),
    "YAML": (YAML, Content.CODE),
    "TOML": (TOML, Content.CODE),
    "CSS": (CSS, Content.CODE),
    "a diff": (DIFF, Content.CODE),
    "a traceback": (TRACEBACK, Content.CODE),
    "HTML": (HTML, Content.XML),
    "JSON": (json.dumps(OBJECT), Content.JSON),
    "minified JSON": (json.dumps([OBJECT] * 9, separators=(",", ":")), Content.JSON),
    "indented JSON": (json.dumps(OBJECT, indent=2), Content.JSON),
    "JSON lines": ("\n".join([json.dumps(OBJECT)] * 4), Content.JSON),
    "a Markdown table": (MARKDOWN_TABLE, Content.TABLE),
    "an ASCII table": (ASCII_TABLE, Content.TABLE),
    "CSV": (CSV, Content.TABLE),
    "TSV": (TSV, Content.TABLE),
    "a log": (LOG, Content.LOG),
    "an access log": (ACCESS_LOG, Content.LOG),
    "maths": (MATHS, Content.MATH),
    "an environment": (ENVIRONMENT, Content.MATH),
    "base64": (BASE64, Content.DATA),
    "hexadecimal digits": (HEX, Content.DATA),
    "URLs": (URLS, Content.DATA),
}
ENGLISH = (
    "The fleet is planned again whenever the load of a pool crosses its limit. What that costs is "
    "known before (see the table), and nobody has to guess: a plan names its price.\n\n"
    "If you want to know more, ask. For a window of one hour it takes 3.5 ms; while that is short, "
    "it isn't nothing."
)
PROSE = {
    "English": ENGLISH,
    "wrapped": "Import duties on grain rose in the year after the war,\n"
    "for the harvest had failed and\nwhile prices doubled abroad, the merchants who had bought\n"
    "in time made more than ever; from then on nobody\nreturned to the old rules.",
    "CRLF": ENGLISH.replace("\n", "\r\n"),
    "CR": ENGLISH.replace("\n", "\r"),
    "Chinese": "舰队的计划随着负载而变化。\n负载超过上限时会重新计算。\n\n这需要几毫秒。",
    "Thai": "น้ำเป็นสิ่งจำเป็นสำหรับสิ่งมีชีวิตทุกชนิด คนเราดื่มน้ำทุกวัน",
    "Arabic": "الماء ضروري لكل كائن حي. يشرب الناس الماء كل يوم، ويستخدمونه في الطبخ.",
    "Hindi": "पानी हर जीव के लिए ज़रूरी है। लोग रोज़ पानी पीते हैं।",
    "headings": f"# A heading\n\n## Another one\n\n{ENGLISH}\n\n### And a third\n\n{ENGLISH}",
    "a list": "- Ask what the fleet costs now.\n- Find out what it would cost with a third pool.\n"
    "  This takes longer than you think.\n- Decide, and write down why.\n",
    "a numbered list": "1. Stop the worker.\n2. Wait until its partitions are given away.\n"
    "3. Start it again, and look at the lag.\n",
    "a quote": "> What is measured gets managed, he said,\n> and left without a word.\n",
    "a chat": "User: how many replicas do we have?\nAssistant: Twelve in the short pool.\n"
    "User: and is that enough?\nAssistant: For now it is.\n",
    "a chat with times": "[10:32] Ann: is the worker up again?\n"
    "[10:33] Bo: yes, since ten o'clock\n[10:35] Ann: good, then let's go on with the plan\n",
    "inline code": "Call `plan(workload, request)` and look at `plan.cost`. With `--explain` it "
    "also says why; `gamma_max` limits what is compressed.\n",
    "a URL": "The paper is at https://arxiv.org/abs/2603.16514 and it is worth your time.",
}


@pytest.mark.parametrize("name", ATOMS)
def test_what_is_not_prose_is_recognised_by_itself(name: str) -> None:
    text, content = ATOMS[name]
    assert content_of(text) is content
    assert [block.content for block in blocks(text)] == [content]


@pytest.mark.parametrize("name", ATOMS)
def test_what_is_not_prose_is_recognised_with_windows_line_ends(name: str) -> None:
    text, content = ATOMS[name]
    assert content_of(text.replace("\n", "\r\n")) is content


@pytest.mark.parametrize("name", ATOMS)
@pytest.mark.parametrize("gap", ["\n", "\n\n"])
def test_what_is_not_prose_is_cut_out_of_prose_to_the_character(name: str, gap: str) -> None:
    text, content = ATOMS[name]
    before = ENGLISH + gap
    whole = before + text.rstrip("\n") + gap + ENGLISH
    assert [block.content for block in blocks(whole)] == [Content.PROSE, content, Content.PROSE]
    assert [block.start for block in blocks(whole)][1:] == [len(before), len(whole) - len(ENGLISH)]


@pytest.mark.parametrize("name", PROSE)
def test_prose_stays_prose(name: str) -> None:
    assert content_of(PROSE[name]) is Content.PROSE
    assert [block.content for block in blocks(PROSE[name])] == [Content.PROSE]


@pytest.mark.parametrize(
    ("category", "content"),
    [
        ("prose", Content.PROSE),
        ("rag", Content.PROSE),
        ("chat", Content.PROSE),
        ("code", Content.CODE),
        ("tool", Content.JSON),
    ],
)
def test_the_callers_category_wins(category: str, content: Content) -> None:
    for text in (PYTHON, ENGLISH, ""):
        assert content_of(text, category) is content


@pytest.mark.parametrize("category", ["other", None, "unheard of"])
def test_a_category_that_says_nothing_leaves_it_to_the_text(category: str | None) -> None:
    assert content_of(PYTHON, category) is Content.CODE
    assert content_of(ENGLISH, category) is Content.PROSE
