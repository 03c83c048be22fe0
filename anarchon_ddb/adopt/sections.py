"""A template as text in sections: what is shared is cut out of it, and lines are added to it.

Nothing is parsed and written anew: a person's comments, order and spelling stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOP = re.compile(r"^([A-Za-z]\w*):(.*)$")
_ENTRY = re.compile(r"^ +([A-Za-z0-9]\w*):")

Text = str
Section = dict[str, Text]
"""The entries of a section by name; each with the comment above it."""

SHARED = ("Parameters", "Conditions", "Globals", "Resources", "Outputs")
_FIRST_SHARED = "Schedules"


@dataclass(frozen=True, slots=True)
class Shared:
    """What jobs share, as it stands in the template of this package."""

    head: str
    sections: dict[str, Section]


def split(template: str) -> tuple[str, dict[str, list[str]]]:
    """Return what stands above the sections, and the lines of each."""
    head: list[str] = []
    sections: dict[str, list[str]] = {}
    current = head
    for line in template.splitlines():
        top = _TOP.match(line)
        if top and top[1] in SHARED:
            current = sections.setdefault(top[1], [])
        else:
            current.append(line)
    return "\n".join(head).strip(), sections


def entries(lines: list[str]) -> Section:
    """Return the entries of a section, indented by two."""
    found: Section = {}
    above: list[str] = []
    name = ""
    for line in lines:
        is_entry = line.startswith("  ") and not line.startswith(("   ", "  #"))
        entry = _ENTRY.match(line) if is_entry else None
        if entry:
            name = entry[1]
            found[name] = "\n".join([*above, line])
            above = []
        elif not line.strip() or line.startswith("  #"):
            above.append(line)
        elif name:
            found[name] = "\n".join([found[name], *above, line])
            above = []
    return {key: text.strip("\n") for key, text in found.items()}


def shared(template: str) -> Shared:
    """Cut out of this package's template what jobs share: the jobs and what is theirs goes."""
    head, lines = split(template)
    sections = {name: entries(part) for name, part in lines.items()}
    names = list(sections["Resources"])
    gone = names[: names.index(_FIRST_SHARED)]
    resources = {name: text for name, text in sections["Resources"].items() if name not in gone}
    resources[_FIRST_SHARED] = _without_ruler(resources[_FIRST_SHARED])
    sections["Resources"] = resources
    sections["Outputs"] = _that_name_none(sections["Outputs"], gone)
    rest = "\n".join(text for name in SHARED[1:] for text in sections[name].values())
    sections["Parameters"] = {
        name: text for name, text in sections["Parameters"].items() if _is_named(name, rest)
    }
    return Shared(head, sections)


def _without_ruler(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("  # ---"))


def _that_name_none(section: Section, gone: list[str]) -> Section:
    return {
        name: text
        for name, text in section.items()
        if not any(_is_named(one, text.partition(":")[2]) for one in gone)
    }


def _is_named(name: str, text: str) -> bool:
    return re.search(rf"(?:!Ref |!GetAtt |\$\{{){name}\b", text) is not None


def written(parts: Shared, jobs: Section) -> str:
    """Return a whole template: the shared parts, and the jobs before them."""
    blocks = [parts.head]
    for name, section in parts.sections.items():
        inside = {**jobs, **section} if name == "Resources" else section
        gap = "\n\n" if name == "Resources" else "\n"
        blocks.append(f"{name}:\n" + gap.join(inside.values()))
    return "\n\n".join(blocks) + "\n"


def insert(template: str, additions: dict[str, Section]) -> str:
    """Return a template with entries added at the end of its sections.

    A section that it does not have is put at its end. Nothing else is touched.
    """
    lines = template.splitlines()
    for name, section in additions.items():
        new = "\n\n".join(section.values()).splitlines()
        if not new:
            continue
        end = _end_of(lines, name)
        if end is None:
            lines += ["", f"{name}:", *new]
        else:
            gap = [""] if name == "Resources" else []
            lines[end:end] = [*gap, *new]
    return "\n".join(lines) + "\n"


def _end_of(lines: list[str], name: str) -> int | None:
    """Return the index behind the last line of a section, None if there is no such section."""
    start = next((at for at, line in enumerate(lines) if line.startswith(f"{name}:")), None)
    if start is None:
        return None
    end = start + 1
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if line.strip() and not line[0].isspace() and not line.startswith("#"):
            break
        if line.strip() and line[0].isspace():
            end = at + 1
    return end
