"""What is written agrees with the code: the picture of the rooms, links, settings, docstrings."""

from __future__ import annotations

import doctest
import importlib
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fleetopt.config.settings import Settings

PACKAGE = Path(__file__).parents[1] / "fleetopt"
EXAMPLES = sorted(
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    for file in PACKAGE.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md")


def pages(project: Path) -> list[Path]:
    return sorted(page for pattern in PAGES for page in project.glob(pattern))


def drawn(picture: str) -> set[str]:
    """Patterns of the files and of the folders in rooms, each under the room above it."""
    paths, room = set(), ""
    for line in picture.splitlines():
        name = line.split()[0]
        if line.startswith(" "):
            paths.add(room + name + "*" * name.endswith("/"))
        elif name.endswith("/"):
            room = name
        else:
            paths.add(name)
    return paths


def test_the_picture_of_the_rooms_names_every_file_and_no_other(project: Path) -> None:
    text = (project / "docs" / "design.md").read_text()
    picture = text.rpartition("```\n")[0].rpartition("```\n")[2]
    package = project / "fleetopt"
    patterns = drawn(picture)
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    lacking = {file for file in files if not any(fnmatch(file, one) for one in patterns)}
    assert sorted(file for file in lacking if "__" not in file) == [], (
        "docs/design.md lacks them: a line for each, or for all of a kind"
    )
    gone = [one for one in patterns if not any(fnmatch(file, one) for file in files)]
    assert sorted(gone) == [], "docs/design.md names them, but they are gone"


def test_links_between_pages_lead_to_files(project: Path) -> None:
    assert len(pages(project)) > 8
    for page in pages(project):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_leads_to_every_page(project: Path) -> None:
    readme = (project / "README.md").read_text()
    for page in project.glob("docs/*.md"):
        assert f"(docs/{page.name})" in readme, f"README.md has no link to {page.name}"


@pytest.mark.parametrize("setting", sorted(Settings.model_fields.keys() - {"fleets", "profiles"}))
def test_pages_name_only_settings_that_exist(project: Path, setting: str) -> None:
    known = Settings().model_dump()[setting]
    for page in pages(project):
        for name in re.findall(rf"`{setting}\.([a-z_0-9]+)", page.read_text()):
            assert name in known, f"{page.name}: {setting}.{name}"


@pytest.mark.parametrize("module", EXAMPLES)
def test_the_docstrings_examples_run(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0
    assert outcome.failed == 0
