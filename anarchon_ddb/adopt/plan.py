"""What `init` would do to a folder, as a value: files to write, and lines to add by hand.

Planned first, done afterwards. A file that is there is never written over: what should be in it is
told as lines. Only the template can be added to, on demand, and only by lines that leave the rest.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

from anarchon_ddb.adopt import sections, shipped, stanza
from anarchon_ddb.errors import AnarchonError
from anarchon_ddb.template.source import Map, Tagged, parse, read

if TYPE_CHECKING:
    from pathlib import Path

    from anarchon_ddb.adopt.sections import Section, Shared
    from anarchon_ddb.adopt.stanza import NewJob
    from anarchon_ddb.template.source import Source

_MAKEFILE = (
    "# `sam build` calls this; `make` alone has nothing to do here.\ninclude infra/build.mk\n"
)
_KEPT_AS_IS = ("infra/alarms.yaml", "infra/build.mk", "infra/dashboard.yaml", "infra/resumer.yaml",
               "infra/table.yaml")  # fmt: skip
_TRANSFORM = "AWS::Serverless-2016-10-31"


@dataclass(slots=True)
class Plan:
    """What is to be done."""

    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    """To be written; none of them exists."""
    same: list[str] = field(default_factory=list)
    """There, and as they should be."""
    differs: list[str] = field(default_factory=list)
    """There, and not as this version ships them; left alone."""
    additions: dict[str, Section] = field(default_factory=dict)
    """Entries for sections of the template that is there."""
    template: str = "template.yaml"
    lines: dict[str, str] = field(default_factory=dict)
    """Lines for other files that are there."""
    notes: list[str] = field(default_factory=list)

    @property
    def added_to(self) -> str:
        """The template with its additions."""
        text = (self.folder / self.template).read_text(encoding="utf-8")
        return sections.insert(text, self.additions)


def plan(folder: Path, job: NewJob | None) -> Plan:
    """Plan what a folder lacks.

    Parameters
    ----------
    folder : Path
        A SAM project, or a folder that is empty or not there yet.
    job : NewJob, optional
        A job to add.

    Raises
    ------
    TemplateError
        If there is a template that can't be read.
    """
    made = Plan(folder)
    shared = sections.shared(shipped.read("template.yaml"))
    for name in _KEPT_AS_IS:
        _file(made, name, shipped.read(name))
    _template(made, shared, job)
    _samconfig(made)
    _makefile(made)
    if not (folder / "requirements-lambda.lock").exists():
        text = f"# What goes into the functions, beside handlers/: add what yours import.\nanarchon_ddb{_bounds()}\n"  # noqa: E501
        _file(made, "requirements-lambda.txt", text, may_differ=True)
    _file(made, "handlers/__init__.py", "", may_differ=True)
    if job is not None:
        _file(made, f"handlers/{job.module}.py", stanza.handler(job), may_differ=True)
    return made


def carry_out(made: Plan, *, apply: bool) -> None:
    """Write the new files; with ``apply`` the additions to the template, too."""
    template = _checked(made) if apply and made.additions else None
    for name, text in made.files.items():
        path = made.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    if template is not None:
        (made.folder / made.template).write_text(template, encoding="utf-8")


def _checked(made: Plan) -> str:
    """Return the template with its additions, once it is sure that nothing else changed.

    Raises
    ------
    AnarchonError
        If the text can't be added to in this way, as in JSON or in YAML on one line.
    """
    path = made.folder / made.template
    before, text = read(path).data, made.added_to
    try:
        after = parse(text, path).data
    except AnarchonError:
        after = Map(1)
    for name in {*before, *made.additions}:
        own, now = before.get(name), after.get(name)
        new = set(made.additions.get(name, ()))
        rest = {k: v for k, v in now.items() if k not in new} if isinstance(now, dict) else now
        if _plain(rest) != _plain(own) and (rest or own):
            raise AnarchonError(f"{path}: {name} can't be added to as text: add the lines by hand")
    return text


def _plain(value: object) -> object:
    """Return a value without its lines: these move when something is added above."""
    if isinstance(value, Tagged):
        return value.name, _plain(value.argument)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _bounds() -> str:
    found = version("anarchon_ddb")
    major, minor = (*found.split("."), "0")[:2]
    return f">={found},<{major}.{int(minor) + 1}"


def _file(made: Plan, name: str, text: str, *, may_differ: bool = False) -> None:
    path = made.folder / name
    if not path.exists():
        made.files[name] = text
    elif may_differ or path.read_text(encoding="utf-8") == text:
        made.same.append(name)
    else:
        made.differs.append(name)


def _template(made: Plan, shared: Shared, job: NewJob | None) -> None:
    name = next((n for n in ("template.yaml", "template.yml") if (made.folder / n).exists()), None)
    if name is None:
        jobs = {} if job is None else {job.logical_id: stanza.stanza(job, is_alone=False)}
        made.files["template.yaml"] = sections.written(shared, jobs)
        return
    made.template = name
    source = read(made.folder / name)
    _transform(made, source)
    has_globals = _has_globals(source)
    _refuse_other_names(source, shared)
    for section in sections.SHARED:
        if section != "Globals":
            missing = _missing(source, section, shared)
            if missing:
                made.additions[section] = missing
    if job is not None:
        _job(made, source, job, is_alone=not has_globals)


def _transform(made: Plan, source: Source) -> None:
    given = source.data.get("Transform")
    if _TRANSFORM not in (given if isinstance(given, list) else [given]):
        made.lines[made.template] = f"Transform: {_TRANSFORM}"


def _refuse_other_names(source: Source, shared: Shared) -> None:
    """Refuse a resource of a shared name and another type: it would be taken for the shared one."""
    for name, text in shared.sections["Resources"].items():
        there = source.data["Resources"].get(name)
        kind = re.search(r"^    Type: (\S+)", text, re.MULTILINE)
        if kind and isinstance(there, dict) and there.get("Type") != kind[1]:
            raise AnarchonError(
                f"{source.path} line {source.data['Resources'].lines[name]}: {name} is "
                f"{there.get('Type')}, expected {kind[1]}: rename yours, since the shared parts "
                "refer to each other by these names"
            )


def _has_globals(source: Source) -> bool:
    """Whether functions get the settings of a job by themselves."""
    found: object = source.data
    for key in ("Globals", "Function", "Environment", "Variables"):
        found = found.get(key) if isinstance(found, dict) else None
    return isinstance(found, dict) and "ANARCHON_TABLE" in found


def _missing(source: Source, section: str, shared: Shared) -> Section:
    there = source.data.get(section)
    names = there if isinstance(there, dict) else {}
    return {name: text for name, text in shared.sections[section].items() if name not in names}


def _job(made: Plan, source: Source, job: NewJob, *, is_alone: bool) -> None:
    if job.logical_id in source.data["Resources"]:
        made.notes.append(f"{made.template} has {job.logical_id} already: it is left as it is")
        return
    text = stanza.stanza(job, is_alone=is_alone)
    made.additions["Resources"] = {job.logical_id: text, **made.additions.get("Resources", {})}


def _samconfig(made: Plan) -> None:
    path = made.folder / "samconfig.toml"
    if not path.exists():
        name = re.sub(r"[^A-Za-z0-9-]+", "-", made.folder.resolve().name).strip("-") or "anarchon"
        name = name if name[0].isalpha() else f"stack-{name}"
        made.files["samconfig.toml"] = shipped.read("samconfig.toml").replace(
            "anarchon-", f"{name}-"
        )
        return
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise AnarchonError(f"{path}: not TOML: {error}") from None
    given = found.get("default", {})
    lines = []
    if not given.get("build", {}).get("parameters", {}).get("build_in_source"):
        lines += ["[default.build.parameters]", "build_in_source = true"]
    if "AUTO_EXPAND" not in str(given.get("deploy", {}).get("parameters", {}).get("capabilities")):
        lines += ["[default.deploy.parameters]",
                  'capabilities = "CAPABILITY_IAM CAPABILITY_AUTO_EXPAND"']  # fmt: skip
    if lines:
        made.lines["samconfig.toml"] = "\n".join(lines)
    else:
        made.same.append("samconfig.toml")


def _makefile(made: Plan) -> None:
    path = made.folder / "Makefile"
    if not path.exists():
        made.files["Makefile"] = _MAKEFILE
    elif "infra/build.mk" in path.read_text(encoding="utf-8"):
        made.same.append("Makefile")
    else:
        made.lines["Makefile"] = "include infra/build.mk"
