"""The checkpoint store on local files: whole objects or none, one coordinator, no fresh start on a used store."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from clonos.core.wire.decoding import FormatUnknown
from clonos.io.store.cloud_files import CloudLocation
from clonos.io.store.envelope import ObjectCorrupt, seal, seal_pieces, unseal, unseal_pieces
from clonos.io.store.metadata_chain import RETAINED_MAX, AppendOutcome
from clonos.io.store.object_files import LocalFiles, ObjectMissing, StoreFailed, StoreUnsupported
from clonos.io.store.store import AnotherCoordinator, CheckpointStore, NothingToResume, StoreInUse


@given(some.binary(max_size=3000) | some.binary(max_size=4).map(lambda unit: unit * 1000))
def test_sealed_content_is_unsealed_unchanged(content: bytes) -> None:
    assert unseal(seal(content, "name"), "name") == content


@given(some.data())
def test_one_altered_or_missing_byte_of_an_object_is_detected(data: some.DataObject) -> None:
    sealed = bytearray(seal(data.draw(some.binary(min_size=1, max_size=2000)), "snapshots/7"))
    where = data.draw(some.integers(0, len(sealed) - 1))
    if data.draw(some.booleans()):
        del sealed[where:]
    else:
        sealed[where] ^= data.draw(some.integers(1, 255))
    with pytest.raises((ObjectCorrupt, FormatUnknown), match="snapshots/7"):
        unseal(bytes(sealed), "snapshots/7")


def test_a_repetitive_object_is_stored_compressed() -> None:
    assert len(seal(bytes(1 << 20), "name")) < 1 << 14


@given(some.lists(some.binary(max_size=2000) | some.just(bytes(5000)), max_size=5))
def test_content_sealed_in_pieces_is_unsealed_in_the_same_pieces(pieces: list[bytes]) -> None:
    assert [bytes(piece) for piece in unseal_pieces(b"".join(seal_pieces(pieces, "name")), "name")] == pieces


def test_an_object_of_another_format_is_refused_by_its_number() -> None:
    name = "snapshots/7"
    for sealed, read in ((seal(b"state", name), unseal), (b"".join(seal_pieces([b"state"], name)), _joined)):
        number = sealed[6]
        with pytest.raises(FormatUnknown) as refused:
            read(sealed[:6] + b"\x02" + sealed[7:], name)
        assert str(refused.value) == (
            f"the object {name} has format 2, and this version of clonos reads format {number}:"
            " use the version that wrote it."
        )


def _joined(data: bytes, name: str) -> bytes:
    return b"".join(unseal_pieces(data, name))


@given(some.data())
def test_an_altered_byte_in_pieces_is_detected_before_the_end(data: some.DataObject) -> None:
    pieces = data.draw(some.lists(some.binary(min_size=1, max_size=900), min_size=1, max_size=3))
    sealed = bytearray(b"".join(seal_pieces(pieces, "snapshots/7")))
    sealed[data.draw(some.integers(0, len(sealed) - 1))] ^= data.draw(some.integers(1, 255))
    with pytest.raises((ObjectCorrupt, FormatUnknown), match="snapshots/7"):
        list(unseal_pieces(bytes(sealed), "snapshots/7"))


def test_missing_or_reordered_pieces_are_detected() -> None:
    head, one, one_data, two, two_data, end = seal_pieces([b"one", b"two"], "name")
    for parts in (
        (head, two, two_data, one, one_data, end),
        (head, one, one_data, end),
        (head, one, one_data, two, two_data),
        (head, one, one_data, two, two_data, end, b"more"),
        (head, one, one_data, two),
    ):
        with pytest.raises(ObjectCorrupt):
            list(unseal_pieces(b"".join(parts), "name"))


@pytest.mark.parametrize("name", ["snapshots/1/000000000002-7-full", "snapshots/2/000000000001-7-full", "x" * 900])
def test_an_object_that_is_whole_is_not_taken_for_another_one(name: str) -> None:
    own = "snapshots/1/000000000001-7-full"
    with pytest.raises(ObjectCorrupt, match=f"the object {own} .* which says that it is '{name}'"):
        unseal(seal(b"state", name), own)
    with pytest.raises(ObjectCorrupt, match=f"the object {own} .* which says that it is '{name}'"):
        list(unseal_pieces(b"".join(seal_pieces([b"state"], name)), own))


def test_an_exchanged_object_record_or_entry_of_a_store_is_corrupt(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    for checkpoint in (1, 2):
        store.append_checkpoint(checkpoint, b"metadata")
        store.write_object(f"snapshots/0/{checkpoint}", [b"state"])
    for folder in ("chain", "objects/snapshots/0"):
        *_, earlier, later = sorted((tmp_path / folder).iterdir())
        content = earlier.read_bytes()
        earlier.write_bytes(later.read_bytes())
        later.write_bytes(content)
    for checkpoint in (1, 2):
        with pytest.raises(ObjectCorrupt, match="another object is in its place"):
            list(store.read_object(f"snapshots/0/{checkpoint}"))
    with pytest.raises(ObjectCorrupt, match="another object is in its place"):
        CheckpointStore(str(tmp_path)).open_job("one", resume=True)


def test_an_object_of_the_same_name_from_another_store_is_corrupt(tmp_path: Path) -> None:
    one, other = CheckpointStore(str(tmp_path / "one")), CheckpointStore(str(tmp_path / "other"))
    stored_as = one.write_object("snapshots/0/1", [b"state", b"more"])
    other.write_object("snapshots/0/1", [b"state", b"else"])
    assert [bytes(piece) for piece in one.read_object(stored_as)] == [b"state", b"more"]
    (tmp_path / "one/objects/snapshots/0/1").write_bytes((tmp_path / "other/objects/snapshots/0/1").read_bytes())
    with pytest.raises(ObjectCorrupt, match="it is another object of this name: digest "):
        list(one.read_object(stored_as))
    one.delete_objects([stored_as])
    with pytest.raises(ObjectMissing):
        one.read_object(stored_as)


def test_compression_is_skipped_for_pieces_after_an_incompressible_one() -> None:
    rng = Random(1).randbytes(1000)
    assert len(b"".join(seal_pieces([rng, bytes(1000)], "name"))) > 2000
    assert len(b"".join(seal_pieces([rng] + [bytes(1000)] * 100, "name"))) < 50_000


def test_an_object_survives_the_process_that_wrote_it(tmp_path: Path) -> None:
    CheckpointStore(str(tmp_path)).write_object("task/3/7", [b"state"])
    assert b"".join(CheckpointStore(f"file://{tmp_path}").read_object("task/3/7")) == b"state"


def test_a_missing_object_is_named_and_deleting_it_twice_is_allowed(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.write_object("task/3/7", [b"state"])
    store.delete_objects(["task/3/7", "task/3/7"])
    with pytest.raises(ObjectMissing, match="objects/task/3/7"):
        b"".join(store.read_object("task/3/7"))


def test_a_torn_write_leaves_no_object(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.write("a/b", b"whole")
    (tmp_path / "a" / ".b.0123").write_bytes(b"tor")
    assert files.list("a") == ["a/b"]
    assert files.list("nowhere") == []


def test_a_folder_that_cannot_be_written_is_a_retriable_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    files = LocalFiles(tmp_path / "file")
    for attempt in (lambda: files.write("a", b""), lambda: files.create_if_absent("a", b""), lambda: files.read("a")):
        with pytest.raises(StoreFailed, match="failed to"):
            attempt()


def test_a_store_behind_a_link_is_used_and_one_behind_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to("disk")
    LocalFiles(tmp_path / "store").write("objects/one", b"state")
    assert (tmp_path / "disk" / "objects" / "one").read_bytes() == b"state"
    (tmp_path / "lost").symlink_to("not-mounted")
    with pytest.raises(StoreFailed, match=r"lost is a link to not-mounted, which does not exist: make that folder"):
        LocalFiles(tmp_path / "lost" / "store").create_if_absent("job", b"1")
    assert not (tmp_path / "not-mounted").exists()


def test_when_many_writers_create_one_object_exactly_one_succeeds(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    start = threading.Barrier(8)
    won: list[int] = []

    def create(number: int) -> None:
        start.wait()
        for round_number in range(20):
            if files.create_if_absent(f"chain/{round_number}", b"%d" % number):
                won.append(round_number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == list(range(20))


def test_a_job_has_one_id_and_each_start_a_higher_term(tmp_path: Path) -> None:
    first, second = CheckpointStore(str(tmp_path)), CheckpointStore(str(tmp_path))
    record = first.open_job("wordcount", splits={"source": (b"1", b"2")})
    assert record.job_id.startswith("wordcount-")
    assert len(record.job_id) == len("wordcount-") + 16
    assert second.open_job("ignored", resume=True) == record
    assert (first.term, second.term) == (1, 2)


def test_a_resumed_job_has_the_hash_seed_of_its_first_start(tmp_path: Path) -> None:
    seeds = [CheckpointStore(str(tmp_path / name)).open_job(name).hash_seed for name in ("one", "two")]
    assert seeds[0] != seeds[1]
    assert all(1 <= int(seed) < 1 << 32 for seed in seeds), "0 would switch the seed off"
    assert CheckpointStore(str(tmp_path / "one")).find_job().hash_seed == seeds[0]
    again = CheckpointStore(str(tmp_path / "one")).open_job("one", overwrite=True, hash_seed="4711")
    assert again.hash_seed == CheckpointStore(str(tmp_path / "one")).find_job().hash_seed == "4711"


@pytest.mark.parametrize("hash_seed", ["", "random", "-1", "1\n", "07", "99999999999"])
def test_a_record_with_a_hash_seed_that_python_would_not_take_is_damaged(tmp_path: Path, hash_seed: str) -> None:
    record = {"format": 1, "name": "one", "job_id": "one-1", "splits": {}, "hash_seed": hash_seed}
    LocalFiles(tmp_path).write("job", seal(msgspec.msgpack.encode(record), "job"))
    with pytest.raises(ObjectCorrupt, match="hash_seed"):
        CheckpointStore(str(tmp_path)).find_job()


def test_a_fresh_start_on_a_used_store_is_refused(tmp_path: Path) -> None:
    record = CheckpointStore(str(tmp_path)).open_job("one")
    with pytest.raises(StoreInUse, match=record.job_id):
        CheckpointStore(str(tmp_path)).open_job("one")


def test_a_resume_without_a_job_or_a_checkpoint_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    with pytest.raises(NothingToResume, match="no job"):
        store.open_job("one", resume=True)
    store.open_job("one")
    with pytest.raises(NothingToResume, match="no completed checkpoint"):
        store.checkpoint_metadata()


def test_a_resume_uses_the_last_or_the_named_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    for checkpoint in (1, 2, 5):
        assert store.append_checkpoint(checkpoint, b"metadata %d" % checkpoint) is AppendOutcome.CREATED
    later = CheckpointStore(str(tmp_path))
    later.open_job("one", resume=True)
    assert later.checkpoint_metadata() == b"metadata 5"
    assert later.checkpoint_metadata(2) == b"metadata 2"
    assert later.checkpoints() == [1, 2, 5]
    with pytest.raises(NothingToResume, match="checkpoint 3"):
        later.checkpoint_metadata(3)


def test_an_earlier_coordinator_finds_that_it_was_superseded(tmp_path: Path) -> None:
    earlier, later = CheckpointStore(str(tmp_path)), CheckpointStore(str(tmp_path))
    earlier.open_job("one")
    earlier.append_checkpoint(1, b"1")
    later.open_job("one", resume=True)
    assert earlier.append_checkpoint(2, b"2") is AppendOutcome.TAKEN
    assert later.append_checkpoint(2, b"2'") is AppendOutcome.CREATED
    assert earlier.append_checkpoint(2, b"2") is AppendOutcome.TAKEN


def test_an_entry_whose_write_reported_a_failure_is_recognised_as_its_writers(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    number = store.chain.last_number
    store.append_checkpoint(1, b"1")
    store.chain.last_number = number
    assert store.append_checkpoint(1, b"1") is AppendOutcome.CREATED
    assert store.append_checkpoint(2, b"2") is AppendOutcome.CREATED
    assert len(LocalFiles(tmp_path).list("chain")) == 3


def test_a_coordinator_that_slept_while_its_entry_was_removed_is_superseded(tmp_path: Path) -> None:
    sleeper, later = CheckpointStore(str(tmp_path)), CheckpointStore(str(tmp_path))
    sleeper.open_job("one")
    later.open_job("one", resume=True)
    for checkpoint in range(1, RETAINED_MAX + 10):
        later.append_checkpoint(checkpoint, b"metadata")
    names = LocalFiles(tmp_path).list("chain")
    assert len(names) == RETAINED_MAX
    assert sleeper.append_checkpoint(1, b"1") is AppendOutcome.TAKEN
    assert LocalFiles(tmp_path).list("chain") == names


def test_overwriting_fences_the_old_job_and_discards_its_state(tmp_path: Path) -> None:
    old, new = CheckpointStore(str(tmp_path)), CheckpointStore(str(tmp_path))
    old_id = old.open_job("one").job_id
    old.append_checkpoint(1, b"1")
    old.write_object("task/0/1", [b"state"])
    record = new.open_job("one", overwrite=True)
    assert record.job_id != old_id
    assert old.append_checkpoint(2, b"2") is AppendOutcome.TAKEN
    with pytest.raises(NothingToResume):
        new.checkpoint_metadata()
    with pytest.raises(ObjectMissing):
        b"".join(new.read_object("task/0/1"))


def test_of_two_coordinators_that_start_at_once_one_wins(tmp_path: Path) -> None:
    CheckpointStore(str(tmp_path)).open_job("one")
    one, other = CheckpointStore(str(tmp_path)), CheckpointStore(str(tmp_path))
    refresh, other.chain.refresh = other.chain.refresh, lambda: None  # type: ignore[method-assign]
    refresh()
    one.open_job("one", resume=True)
    with pytest.raises(AnotherCoordinator):
        other.open_job("one", resume=True)


def test_a_corrupt_entry_of_the_chain_is_named(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    store.append_checkpoint(1, b"metadata")
    name = LocalFiles(tmp_path).list("chain")[-1]
    (tmp_path / name).write_bytes(b"junk")
    with pytest.raises(ObjectCorrupt, match=name):
        CheckpointStore(str(tmp_path)).open_job("one", resume=True)


DEEP = b"\x91" * 5_000 + b"\xc0"


def entry(**changes: object) -> bytes:
    fields = {"format": 1, "kind": "term", "job_id": "one", "term": 1, "claimant": b"12345678"}
    return msgspec.msgpack.encode(fields | changes)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        DEEP,
        msgspec.msgpack.encode({"format": 1, "surprise": msgspec.Raw(DEEP)}),
        b"\x81\xa6format\xa1\xff",
        msgspec.msgpack.encode({"format": 1, "name": "one", "job_id": 7}),
        msgspec.msgpack.encode({"format": 1, "name": "one", "job_id": "one"}),
    ],
)
def test_a_malformed_job_record_raises_only_the_corrupt_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "job").write_bytes(seal(content, "job"))
    with pytest.raises(ObjectCorrupt, match="the object job of the checkpoint store"):
        CheckpointStore(str(tmp_path)).find_job()


@pytest.mark.parametrize(
    "content",
    [
        DEEP,
        entry(surprise=msgspec.Raw(DEEP)),
        entry(kind="other"),
        entry(term=0),
        entry(term=(1 << 64) - 1),
        entry(kind="checkpoint", checkpoint=-1),
        entry(kind="checkpoint", checkpoint=1 << 63),
    ],
)
def test_a_malformed_chain_entry_raises_only_the_corrupt_error(tmp_path: Path, content: bytes) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    name = LocalFiles(tmp_path).list("chain")[-1]
    (tmp_path / name).write_bytes(seal(content, name))
    with pytest.raises(ObjectCorrupt, match=name):
        CheckpointStore(str(tmp_path)).open_job("one", resume=True)


def test_foreign_files_in_the_chain_are_ignored(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    store.append_checkpoint(1, b"1")
    for name in ("README", "copy of 1", "1", "0" * 19 + "x"):
        (tmp_path / "chain" / name).write_bytes(b"")
    later = CheckpointStore(str(tmp_path))
    later.open_job("one", resume=True)
    assert later.checkpoint_metadata() == b"1"


def test_a_store_without_create_if_absent_is_refused() -> None:
    for url in ("abfs://x/y", "ftp://x/y"):
        with pytest.raises(StoreUnsupported, match="create-if-absent"):
            CheckpointStore(url)


def test_the_endpoint_of_a_bucket_comes_from_the_url_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    location = CloudLocation.parse("s3://bucket/a/b/?region=eu-west-1")
    assert location == CloudLocation("s3", "bucket", "a/b", "http://127.0.0.1:1", "eu-west-1")
    assert CloudLocation.parse("s3://bucket?endpoint=host:9000").endpoint == "https://host:9000"
    with pytest.raises(StoreUnsupported, match="option reigon is unknown"):
        CloudLocation.parse("s3://bucket/a?reigon=x")
    with pytest.raises(StoreUnsupported, match=r"no account: add \?account=NAME"):
        CheckpointStore("az://container/x")
    with pytest.raises(StoreUnsupported, match="option region is unknown; the options are account and endpoint"):
        CheckpointStore("az://container/x?account=shop&region=x")
    with pytest.raises(StoreUnsupported, match="no bucket"):
        CloudLocation.parse("s3:///a")


def test_each_cloud_has_its_own_endpoint_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:2")
    assert CloudLocation.parse("s3://bucket/a").endpoint == "http://127.0.0.1:1"
    assert CloudLocation.parse("gs://bucket/a").endpoint == "http://127.0.0.1:2"
    assert CloudLocation.parse("gs://bucket/a").is_plain
    assert not CloudLocation.parse("gs://bucket/a?endpoint=https://storage.example").is_plain


def test_checkpoints_after_the_one_resumed_from_do_not_count(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path))
    store.open_job("one")
    for checkpoint in (1, 2, 3):
        store.append_checkpoint(checkpoint, b"first %d" % checkpoint)
    store = CheckpointStore(str(tmp_path))
    store.find_job()
    store.acquire_term(resume_from=1)
    for checkpoint in (4, 5):
        store.append_checkpoint(checkpoint, b"second %d" % checkpoint)
    store = CheckpointStore(str(tmp_path))
    store.find_job()
    assert store.checkpoints() == [1, 4, 5]
    store.acquire_term(resume_from=4)
    store = CheckpointStore(str(tmp_path))
    store.open_job("one", resume=True)
    assert store.checkpoints() == [1, 4]
    assert store.checkpoint_metadata() == b"second 4"
    with pytest.raises(NothingToResume, match=r"no checkpoint 5. Its checkpoints are: 1, 4."):
        store.checkpoint_metadata(5)


def test_a_job_is_taken_over_only_if_it_did_not_change_since_it_was_read(tmp_path: Path) -> None:
    running, later = CheckpointStore(str(tmp_path)), CheckpointStore(str(tmp_path))
    running.open_job("one")
    later.find_job()
    running.append_checkpoint(1, b"1")
    with pytest.raises(AnotherCoordinator):
        later.acquire_term()
    assert running.append_checkpoint(2, b"2") is AppendOutcome.CREATED
