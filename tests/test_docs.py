"""The pages agree with the code: the picture of the rooms is whole, and links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md")


def pages(project: Path) -> list[Path]:
    return sorted(page for pattern in PAGES for page in project.glob(pattern))


def drawn(picture: str) -> set[str]:
    """Paths of the files that the picture names, each under the room above it."""
    files, room = set(), ""
    for line in picture.splitlines():
        name = line.split()[0]
        if name.endswith("/"):
            room = name
        else:
            files.add(room * line.startswith(" ") + name)
    return files


def test_the_picture_of_the_rooms_names_every_file_and_no_other(project: Path) -> None:
    text = (project / "docs" / "design.md").read_text()
    picture = text.rpartition("```\n")[0].rpartition("```\n")[2]
    package = project / "fleetopt"
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    files = {file for file in files if "__" not in file}
    assert sorted(files - drawn(picture)) == [], "docs/design.md lacks them: a line for each"
    assert sorted(drawn(picture) - files) == [], "docs/design.md names them, but they are gone"


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


@pytest.mark.parametrize("setting", ["kafka", "redis", "window", "ingest", "replan", "worker"])
def test_pages_name_only_settings_that_exist(project: Path, setting: str) -> None:
    from fleetopt.config.settings import Settings

    known = Settings().model_dump()[setting]
    for page in pages(project):
        for name in re.findall(rf"`{setting}\.([a-z_0-9]+)", page.read_text()):
            assert name in known, f"{page.name}: {setting}.{name}"
