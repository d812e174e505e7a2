# SPDX-License-Identifier: BSD-3-Clause
"""What `inspect` reports, from inspect-metadata.json or the files of `/.singularity.d`, shown as Apptainer shows it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from kedge.base.frozen import frozen, replace
from kedge.errors import CorruptImage
from kedge.image.formats.go_json import encode_json, encode_text

if TYPE_CHECKING:
    from kedge.system.views import View

SCRIPTS = ("runscript", "startscript", "test", "helpfile")
_FILES = {"runscript": "runscript", "startscript": "startscript", "test": "test", "helpfile": "runscript.help"}
_ENVIRONMENT_FILES = ("10-docker*.sh", "9?-environment.sh")
BUILD_NOTE = "kedge-build.json"
_MAXIMUM_APPS = 1000
_MAXIMUM_FILE = 16 << 20  # bytes of a script or of labels; real ones have a few kB
_MAXIMUM_DOCUMENT = 4 << 20  # characters of all files that go into one document; real ones have a few thousand


@dataclass(frozen=True, slots=True)
class _AppReport:
    """One SCIF app of an image."""

    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    runscript: str = ""
    startscript: str = ""
    test: str = ""
    helpfile: str = ""

    def as_attributes(self) -> dict[str, Any]:
        """The app as it stands in the JSON format; empty parts are left out."""
        names = ("environment", "labels", *SCRIPTS)
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True, slots=True)
class InspectReport:
    """Everything `inspect` knows about an image."""

    environment: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    runscript: str = ""
    test: str = ""
    helpfile: str = ""
    deffile: str = ""
    startscript: str = ""
    apps: dict[str, _AppReport] = field(default_factory=dict)
    build: dict[str, Any] = field(default_factory=dict)  # what kedge noted when it built the image

    def as_document(self) -> dict[str, Any]:
        """The whole report in the shape of inspect-metadata.json."""
        return _wrap(self.as_attributes())

    def as_attributes(self) -> dict[str, Any]:
        """The report's parts by their JSON names; empty ones are left out."""
        attributes: dict[str, Any] = {}
        if self.apps:
            attributes["apps"] = {name: self.apps[name].as_attributes() for name in sorted(self.apps)}
        for name in ("environment", "labels", "runscript", "test", "helpfile", "deffile", "startscript", "build"):
            if getattr(self, name):
                attributes[name] = getattr(self, name)
        return attributes


@frozen
class ReportSelection:
    """What of a report is wanted; nothing chosen means the labels."""

    parts: frozenset[str] = frozenset()
    app: str = ""
    list_apps: bool = False
    everything: bool = False

    @property
    def wanted(self) -> frozenset[str]:
        """The chosen parts, or the default."""
        return self.parts or (frozenset() if self.list_apps else frozenset({"labels"}))


def _wrap(attributes: dict[str, Any]) -> dict[str, Any]:
    return {"data": {"attributes": attributes}, "type": "container"}


def select_document(report: InspectReport, selection: ReportSelection) -> dict[str, Any]:
    """The JSON form of what is wanted."""
    attributes = report.as_attributes()
    if selection.everything:
        return _wrap(attributes)
    wanted = selection.wanted
    if selection.app:
        app = report.apps.get(selection.app)
        chosen = {} if app is None else {k: v for k, v in app.as_attributes().items() if k in wanted}
        apps: dict[str, Any] = {} if app is None else {"apps": {selection.app: chosen}}
        return _wrap(apps | ({"deffile": report.deffile} if "deffile" in wanted and report.deffile else {}))
    keep = wanted | {"build"} | ({"apps"} if selection.list_apps else set())
    return _wrap({name: value for name, value in attributes.items() if name in keep})


def render_document(document: dict[str, Any]) -> str:
    """The JSON text: tabs, as Apptainer prints it."""
    return encode_json(document, indent="\t")


def render_text(report: InspectReport, selection: ReportSelection) -> str:
    """The text form of what is wanted, in Apptainer's order."""
    if selection.list_apps:
        return "".join(f"{name}\n" for name in sorted(report.apps))
    source: InspectReport | _AppReport = report
    if selection.app:
        source = report.apps.get(selection.app, _AppReport())
    wanted = selection.wanted
    text = f"{report.deffile}\n" if "deffile" in wanted and report.deffile else ""
    for name in SCRIPTS:
        if name in wanted and getattr(source, name):
            text += f"{getattr(source, name)}\n"
    if "environment" in wanted:
        text += "".join(f"=== {path} ===\n{source.environment[path]}\n\n" for path in sorted(source.environment))
    if "labels" in wanted:
        text += "".join(f"{name}: {source.labels[name]}\n" for name in sorted(source.labels))
    return text


# ---- reading


def parse_metadata(raw: bytes, where: str) -> InspectReport:
    """The report that inspect-metadata.json holds."""
    try:
        document = json.loads(raw)
        attributes = document["data"]["attributes"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise CorruptImage(f"{where}: inspect-metadata.json is not valid JSON, or has no attributes") from None
    if not isinstance(attributes, dict):
        raise CorruptImage(f"{where}: inspect-metadata.json has no attributes")
    apps = attributes.get("apps") or {}
    if not isinstance(apps, dict):
        raise CorruptImage(f"{where}: inspect-metadata.json: 'apps' must be an object")
    return InspectReport(
        environment=_texts(attributes, "environment", where),
        labels=_texts(attributes, "labels", where),
        runscript=_text(attributes, "runscript", where),
        test=_text(attributes, "test", where),
        helpfile=_text(attributes, "helpfile", where),
        deffile=_text(attributes, "deffile", where),
        startscript=_text(attributes, "startscript", where),
        apps={str(name): _parse_app(app, where) for name, app in apps.items()},
        build=read_build_note(attributes.get("build")),
    )


def read_build_note(value: object) -> dict[str, Any]:
    """What an image says about its build; empty where it is not an object."""
    return value if isinstance(value, dict) else {}


def _parse_app(app: object, where: str) -> _AppReport:
    if not isinstance(app, dict):
        raise CorruptImage(f"{where}: inspect-metadata.json: an app must be an object")
    return _AppReport(
        environment=_texts(app, "environment", where),
        labels=_texts(app, "labels", where),
        runscript=_text(app, "runscript", where),
        startscript=_text(app, "startscript", where),
        test=_text(app, "test", where),
        helpfile=_text(app, "helpfile", where),
    )


def _text(attributes: dict[str, Any], key: str, where: str) -> str:
    value = attributes.get(key)
    if value is not None and not isinstance(value, str):
        raise CorruptImage(f"{where}: inspect-metadata.json: '{key}' must be text, not {type(value).__name__}")
    return value or ""


def _texts(attributes: dict[str, Any], key: str, where: str) -> dict[str, str]:
    value = attributes.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CorruptImage(f"{where}: inspect-metadata.json: '{key}' must be an object, not {type(value).__name__}")
    return {str(name): str(item) for name, item in value.items()}


def keep_own_parts(metadata: bytes, view: View, where: str) -> bytes | None:
    """The document of `inspect` with help, test and apps that the layers bring along; None where they bring none.

    An image that Apptainer built and pushed has them. Its run script and environment come from the OCI config, which
    cannot hold these parts. Raises CorruptImage when the files cannot be what their names say.
    """
    names = view.names("/.singularity.d")
    if not {"test", "runscript.help"}.intersection(names) and not view.names("/scif/apps"):
        return None
    own = read_report(view, where, limit=_MAXIMUM_DOCUMENT)
    report = replace(parse_metadata(metadata, where), test=own.test, helpfile=own.helpfile, apps=own.apps)
    return encode_text(encode_json(report.as_document()))


def read_report(view: View, where: str, *, limit: int | None = None) -> InspectReport:
    """The report from the image's files, without starting it; at most `limit` characters of them."""
    reader = _ReportReader(view, where, limit)
    folder = "/.singularity.d"
    return InspectReport(
        **reader.read_scripts(folder),
        deffile=reader.read_text(f"{folder}/Singularity").rstrip("\n"),
        apps={
            name: _AppReport(**reader.read_scripts(f"/scif/apps/{name}/scif"))
            for name in view.names("/scif/apps")[:_MAXIMUM_APPS]
        },
        build=_parse_build(reader.read_text(f"{folder}/{BUILD_NOTE}")),
    )


def _parse_build(text: str) -> dict[str, Any]:
    try:
        return read_build_note(json.loads(text)) if text else {}
    except (ValueError, RecursionError):
        return {}


class _ReportReader:
    """Reads the parts of a report; an image of a thousand large apps must not fill the memory."""

    def __init__(self, view: View, where: str, limit: int | None) -> None:
        self._view = view
        self._where = where
        self._limit = limit
        self._characters = 0

    def read_scripts(self, folder: str) -> dict[str, Any]:
        """The scripts, environment and labels in a directory of the image or of an app."""
        return {
            "environment": self._read_environment(f"{folder}/env"),
            "labels": self._read_labels(f"{folder}/labels.json"),
            **{name: self.read_text(f"{folder}/{file}").rstrip("\n") for name, file in _FILES.items()},
        }

    def read_text(self, path: str) -> str:
        """The text of a regular file; empty where there is none."""
        data = self._view.read(path, _MAXIMUM_FILE + 1) or b""
        if len(data) > _MAXIMUM_FILE:
            raise CorruptImage(
                f"{path} in the image has more than {_MAXIMUM_FILE} bytes; that is too large for its name"
            )
        text = data.decode("utf-8", "replace")
        self._characters += len(text)
        if self._limit is not None and self._characters > self._limit:
            raise CorruptImage(f"{path} and other scripts in the image have more than {self._limit} characters")
        return text

    def _read_environment(self, folder: str) -> dict[str, str]:
        names = self._view.names(folder)
        wanted = [name for name in names if any(fnmatchcase(name, pattern) for pattern in _ENVIRONMENT_FILES)]
        texts = {f"{folder}/{name}": self.read_text(f"{folder}/{name}") for name in wanted}
        return {path: text.rstrip("\n") for path, text in texts.items() if text}

    def _read_labels(self, path: str) -> dict[str, str]:
        text = self.read_text(path)
        if not text.strip():
            return {}
        try:
            labels = json.loads(text)
        except (ValueError, RecursionError):
            raise CorruptImage(f"{self._where}: {path} in the image is not JSON") from None
        if not isinstance(labels, dict):
            raise CorruptImage(f"{self._where}: {path} in the image is JSON, but not an object")
        return {str(name): item if isinstance(item, str) else json.dumps(item) for name, item in labels.items()}
