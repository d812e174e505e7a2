# SPDX-License-Identifier: BSD-3-Clause
"""Records of jobs: plain files that survive everything."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kedge.cluster.job_state import JobStatus, State
from kedge.errors import FileProblem, JobNotFound
from kedge.jobs.records import Draft, Record, Records

NASTY = "a 'b' \"c\" $(touch x)\n`d` ünï\udce4"


def make_draft(name: str = "train", site: str = "here") -> Draft:
    return Draft(name, site, "slurm", {"array": "0-3"}, "/code", "/code/{name}-{id}.out", "", ["sbatch", "x"])


def add_job(records: Records, id: str, name: str = "train", site: str = "here") -> Record:
    key, _ = records.place()
    return records.name_id(records.create(key, make_draft(name, site), "#!/bin/bash\n"), id)


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    records = Records(tmp_path)
    made = add_job(records, "12", NASTY)
    found = records.find("12", "here")
    assert found == made
    assert found.name == NASTY
    assert found.script.read_text() == "#!/bin/bash\n"
    assert found.is_array


def test_records_are_found_by_id_name_and_last(tmp_path: Path) -> None:
    records = Records(tmp_path)
    add_job(records, "11", "other")
    add_job(records, "12")
    assert [records.find(word, "here").id for word in ("12", "train", "last")] == ["12"] * 3
    records = Records(tmp_path)
    add_job(records, "1")
    newer = add_job(records, "1")
    assert records.find("1", "here").key == newer.key


def test_records_of_other_sites_or_none_are_not_found(tmp_path: Path) -> None:
    records = Records(tmp_path)
    add_job(records, "12", site="there")
    with pytest.raises(JobNotFound, match="no record of a job '12'"):
        records.find("12", "here")
    records = Records(tmp_path / "nothing")
    assert records.list_keys() == []
    assert records.list_ids("here") == {}
    with pytest.raises(JobNotFound):
        records.find("last", "here")


def test_records_closed_keep_the_last_words(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = add_job(records, "12")
    status = JobStatus("12", State.TIMEOUT, "TIMEOUT", index=3, signal=15, details=(("a", "b"),))
    records.close(record, [status])
    assert records.list_ids("here") == {}
    assert records.list_ended("here") == {"12": record.key}
    assert records.list_ended("here", time.time() + 60) == {}
    assert records.find("12", "here").read_final() == [status]
    records = Records(tmp_path)
    record = add_job(records, "12")
    records.forget(record)
    assert not record.folder.exists()
    assert records.list_ids("here") == {}
    assert records.list_new() == []
    records = Records(tmp_path)
    record = add_job(records, "7")
    long = (("resources", "cpu=4,mem=16G,node=1,billing=4,gres/gpu=1"), ("folder", "/scratch/ada/" + "x" * 100))
    tasks = [JobStatus("7", State.DONE, "COMPLETED", index=index, name="train", details=long) for index in range(20000)]
    records.close(record, tasks)
    assert record.read_final() == tasks


def test_records_damaged_are_named(tmp_path: Path) -> None:
    records = Records(tmp_path)
    record = add_job(records, "12")
    odd = '{"version":1,"job":{},"submit":[],"name":1}'
    for text in ("", "{", "[]", "{}", '{"job": 1}', "\0\0", odd, "[" * 5000):
        (record.folder / "job.json").write_text(text)
        with pytest.raises(FileProblem, match=r"job\.json"):
            records.find("12", "here")


def test_records_read_what_scripts_wrote(tmp_path: Path) -> None:
    record = add_job(Records(tmp_path), "12")
    (record.folder / "began.3").write_text("12 node1 1000\n/out with blank\n/err\n")
    (record.folder / "ended.3").write_text("137 1060\n")
    (record.folder / "began.4").write_text("12 node2 1000\n")
    (record.folder / "began.x").write_text("\n")
    endings = {each.index: each for each in record.read_endings()}
    assert (endings[3].status, endings[3].began, endings[3].ended) == (137, 1000.0, 1060.0)
    assert (endings[3].output, endings[3].error, endings[3].host) == ("/out with blank", "/err", "node1")
    assert endings[4].status is None
    assert endings[None].status is None


def test_records_are_the_users_alone_and_json(tmp_path: Path) -> None:
    records = Records(tmp_path / "jobs")
    add_job(records, "12")
    assert (tmp_path / "jobs" / "records").stat().st_mode & 0o077 == 0
    record = add_job(Records(tmp_path), "12")
    fields = json.loads((record.folder / "job.json").read_text())
    assert fields["submit"] == ["sbatch", "x"]
    assert fields["job"] == {"array": "0-3"}


def test_records_without_an_id_are_new_until_they_have_one(tmp_path: Path) -> None:
    records = Records(tmp_path)
    key, _ = records.place()
    record = records.create(key, make_draft(), "#!/bin/bash\n")
    assert records.list_new() == [key]
    assert records.find(key, "here").id == ""
    records.name_id(record, "12")
    records.name_id(record, "12")  # who recovers ids may meet who submits
    assert records.list_new() == []
    assert records.find("12", "here").key == key


def test_records_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    records = Records(tmp_path)
    key, folder = records.place()
    folder.mkdir(parents=True)
    with pytest.raises(FileProblem):
        records.create(key, make_draft(), "")
    assert records.list_new() == []
