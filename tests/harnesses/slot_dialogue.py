"""Dialogues with one real slot as text: a command on a line of its own, then all that the slot does, indented.

    > view 2  a 1@1  b 2@5 restore=0  c 1@3
      slot 3 <- log request of b.2 to c

The job is a chain ``a -> b -> c``; c has effects outside. A life is ``b.2``: b, which began with view 2. A log is
written as its entries: ``s3`` a step of 3 elements of input 0, ``k`` a read of the clock, ``r2`` two records, ``t1``
trigger 1. A field that a command does not give is as a peer would send it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clonos.core.checkpoint.snapshot import SNAPSHOT_FORMAT, encode_snapshot, restore_from, standby_payload
from clonos.core.model.element_kind import ElementKind
from clonos.core.model.errors import Blame
from clonos.core.model.ids import (
    COORDINATOR,
    ChannelId,
    CheckpointId,
    Incarnation,
    LogId,
    SlotId,
    TaskId,
    ThreadId,
    journal_of,
    log_of,
)
from clonos.core.model.options import Options
from clonos.core.ports.slot_effects import StandbyRead, TaskRead
from clonos.core.ports.task_port import Output, TaskEmission
from clonos.core.ports.task_snapshot import Snapshot
from clonos.core.slot import slot_events as happened
from clonos.core.slot.slot import Slot
from clonos.core.values import encode_value
from clonos.core.wire import message_codec
from clonos.core.wire.channel_messages import Batch, ChannelHandshake, Position
from clonos.core.wire.control_messages import Completed, Placement, Release, TriggerCheckpoint
from clonos.core.wire.log_delta import Delta, Length
from clonos.core.wire.messages import Message
from clonos.core.wire.recovery_messages import AnnounceAck, InputRange, LogReply, LogRequest, Recourse, TaskFailed
from clonos.core.wire.replication_messages import AppendAck, AppendLog, StandbyUpdate
from tests.harnesses.recording_shell import RecordingShell, elements_of, entries_of
from tests.harnesses.sample_plans import chain_of, number, placement, view

Given = dict[str, str]


class SlotDialogue:
    """One text's slot, and what its commands mean."""

    def __init__(self) -> None:
        self.slot: Slot
        self._ordinals: dict[tuple[int, int], int] = {}
        self._commands: dict[str, Callable[[list[str], Given], None]] = {
            name.removeprefix("do_"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    def run(self, command: str) -> list[str]:
        """The lines that a command leads to."""
        name, *words = command.split()
        given = dict(word.split("=", 1) for word in words if "=" in word)
        if name == "view":
            self._view(words)
        else:
            self._commands[name]([word for word in words if "=" not in word], given)
        lines, self.shell.lines = self.shell.lines, []
        return lines

    # ------------------------------------------------------------------ names

    def task(self, name: str) -> TaskId:
        """``a``"""
        return TaskId("abcdefgh".index(name[0]))

    def log(self, name: str) -> LogId:
        """``a``: the causal log; ``a*``: the journal."""
        return journal_of(self.task(name)) if name.endswith("*") else log_of(self.task(name))

    def life(self, text: str) -> tuple[TaskId, Incarnation]:
        """``b.2``, or ``b`` for the incarnation that the view names."""
        task = self.task(text)
        return task, number(int(text[2:])) if text[1:] else self.slot.view.placements[task].incarnation  # type: ignore[return-value]

    def thread(self, text: str) -> tuple[TaskId, ThreadId]:
        """That of a life, named likewise; it may be over, or not started yet."""
        task, life = self.life(text)
        hosted = self.slot.life(task, life)
        return task, hosted.thread if hosted is not None else self.shell.threads.get((task, life), ThreadId(0))

    def channel(self, text: str) -> Any:
        sender, receiver = text.split("->")
        wanted = None if receiver == "sink" else self.task(receiver)
        return next(c for c in self.slot.plan.channels if (c.sender, c.receiver) == (self.task(sender), wanted))

    def incarnation(self, task: TaskId, given: str | None) -> Incarnation:
        return Incarnation(number(int(given))) if given else self.slot.view.placements[task].incarnation

    def home(self, task: TaskId) -> int:
        """The slot in which the view has a task; 9 before there is a view."""
        return self.slot.view.placements[task].hosting_slot if self.slot.view.placements else 9

    def lengths(self, text: str) -> tuple[Length, ...]:
        return tuple(Length(self.log(n), int(end)) for n, end in (w.split(":") for w in text.split(",") if w))

    def deltas(self, text: str) -> tuple[Delta, ...]:
        """``a[0!:s3,k];a*[4:xyz]``: bytes from an offset on; ! where what lies before is completed."""
        found = []
        for word in text.split(";"):
            if word:
                name, _, rest = word[:-1].partition("[")
                start, _, entries = rest.partition(":")
                data = entries.encode() if name.endswith("*") else entries_of(entries)
                found.append(Delta(self.log(name), int(start.rstrip("!")), start.endswith("!"), data))
        return tuple(found)

    def post(self, event: happened.Event) -> None:
        """An event, and all that it leads to."""
        self.shell.perform(self.slot.step(event))

    def deliver(self, sender: int, message: Message, payload: bytes = b"") -> None:
        decoded = message_codec.decode_message(message_codec.encode_message(message), f"slot {sender}")
        self.post(happened.MessageReceived(SlotId(sender), decoded, memoryview(payload)))

    # ------------------------------------------------------------------ views and the coordinator

    def do_slot(self, words: list[str], given: Given) -> None:
        """``slot 5 journalled tasks=3``: the slot of this dialogue; other options are those of a job."""
        depth = int(given["depth"]) if "depth" in given else None
        plan = chain_of(int(given.pop("tasks", 3)), depth, is_journalled="journalled" in words)
        given.pop("depth", None)
        defaults = {"credit_window_bytes": 1000}
        options = Options(**{**defaults, **{name: int(value) for name, value in given.items()}})  # type: ignore[arg-type]
        self.shell = RecordingShell(plan)
        self.slot = Slot(SlotId(int(words[0])), plan, options, self.shell.new_mirror)

    def _view(self, words: list[str]) -> None:
        """``view 2 generation=1 a 1@1 fresh b 2@5 restore=3 log=7 of=2 standbys=6 keepers=7,8 since=1,2``"""
        placements: list[Placement] = []
        generation, n = 1, int(words[0])
        task = -1
        found: dict[int, dict[str, Any]] = {}
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key == "generation":
                generation = int(value)
            elif len(word) == 1:
                task = self.task(word)
                found[task] = {}
            elif "@" in word:
                life, slot = word.split("@")
                found[task] |= {"life": number(int(life)), "slot": int(slot)}
            elif word in ("fresh", "single_step", "suspended"):
                found[task][f"is_{word}"] = True
            elif key == "of":
                found[task]["objects"] = tuple(f"object-{i + 1}" for i in range(int(value)))
            elif key in ("standbys", "keepers"):
                found[task][key] = tuple(SlotId(int(slot)) for slot in value.split(","))
            elif key == "since":
                found[task]["keepers_since"] = tuple(number(int(n)) for n in value.split(","))
            else:
                names = {"restore": "restore", "log": "log_offset_bytes", "confirmed": "confirmed_seq"}
                found[task][names[key]] = int(value)
        for task, fields in sorted(found.items()):
            life, slot = fields.pop("life"), fields.pop("slot")
            placements.append(placement(task, life, slot, **{"is_fresh": False, **fields}))
        slots = {s for p in placements for s in (p.slot, *p.standbys, *p.keepers) if s is not None}
        self.deliver(COORDINATOR, view(n, placements, generation, sorted(slots)))

    def do_completed(self, words: list[str], given: Given) -> None:
        """``completed 1 a=10 b=5 c=0``: with the log offset of each task."""
        placements = self.slot.view.placements
        tasks = tuple((p.task, p.incarnation, int(given.get("abcdefgh"[p.task], 0))) for p in placements)
        generation = int(given.get("generation", self.slot.view.generation))
        self.deliver(COORDINATOR, Completed(CheckpointId(int(words[0])), generation, tasks))

    def do_trigger(self, words: list[str], given: Given) -> None:
        self.deliver(
            COORDINATOR, TriggerCheckpoint(*self.life(words[0]), CheckpointId(int(words[1])), "pause" in words)
        )

    def do_release(self, words: list[str], given: Given) -> None:
        self.deliver(COORDINATOR, Release(self.slot.id, " ".join(words)))

    # ------------------------------------------------------------------ peers

    def do_handshake(self, words: list[str], given: Given) -> None:
        """``handshake b->c session=1 next=0 received=0 credit=1000 holds=a:3,b:2 by=2 to=1 view=2 from=9``"""
        channel = self.channel(words[0])
        next_seq = int(given.get("next", 0))
        self.deliver(
            int(given.get("from", self.home(channel.receiver))),
            ChannelHandshake(
                channel.id,
                number(int(given["view"])) if "view" in given else self.slot.view.number,
                self.incarnation(channel.receiver, given.get("by")),
                self.incarnation(channel.sender, given.get("to")),
                int(given.get("session", 1)),
                next_seq,
                int(given.get("received", next_seq)),
                int(given.get("credit", 1000)),
                self.lengths(given.get("holds", "")),
            ),
        )

    def _head(self, channel: Any, given: Given) -> tuple[ChannelId, Incarnation, Incarnation, int, int]:
        hosted = self.slot.hosted.get(channel.receiver)
        receiver = hosted.inputs.receivers.get(channel.id) if hosted else None
        session = int(given.get("session", receiver.session if receiver else 1))
        ordinal = int(given.get("message", receiver.next_ordinal if receiver else 0))
        by, to = self.incarnation(channel.sender, given.get("by")), self.incarnation(channel.receiver, given.get("to"))
        return channel.id, by, to, session, ordinal

    def do_batch(self, words: list[str], given: Given) -> None:
        """``batch a->b xyz first=0 log=a[0!:r3] session=1 by=1 to=2``; ``barrier=1`` or what ``elements_of`` takes."""
        channel = self.channel(words[0])
        kind, count, payload = (ElementKind.BARRIER, 1, b"") if "barrier" in given else elements_of(words[1])
        message = Batch(
            *self._head(channel, given),
            int(given.get("first", 0)),
            kind,
            count,
            CheckpointId(int(given.get("barrier", 0))),
            self.deltas(given.get("log", "")),
        )
        self.deliver(self.home(channel.sender), message, payload)

    def do_position(self, words: list[str], given: Given) -> None:
        channel = self.channel(words[0])
        deltas = self.deltas(given.get("log", ""))
        next_seq = int(given.get("next", 0))
        produced_seq = int(given.get("produced", next_seq))
        self.deliver(self.home(channel.sender), Position(*self._head(channel, given), next_seq, produced_seq, deltas))

    def do_log_request(self, words: list[str], given: Given) -> None:
        """``log_request b.2 c view=2``: to the task c; ``keeper`` after it: to its keeper."""
        asked = number(int(given["view"])) if "view" in given else self.slot.view.number
        task, life = self.life(words[0])
        self.deliver(
            int(given.get("from", self.home(task))),
            LogRequest(task, life, asked, self.task(words[1]), "keeper" in words),
        )

    def do_log_reply(self, words: list[str], given: Given) -> None:
        """``log_reply b.2 c from=3 has=a[0!:r3];b[0!:s3] view=2``"""
        asked = number(int(given["view"])) if "view" in given else self.slot.view.number
        slot = SlotId(int(given["from"]))
        has = self.deltas(given.get("has", ""))
        self.deliver(slot, LogReply(*self.life(words[0]), asked, self.task(words[1]), "keeper" in words, slot, has))

    def do_append_log(self, words: list[str], given: Given) -> None:
        """``append_log c.1 all has=c[0!:s3] journal=0``: no message before it was lost."""
        deltas, start = self.deltas(given.get("has", "")), int(given.get("journal", 0))
        task, incarnation = self.life(words[0])
        ordinal = self.slot.backups.keepers[task].next_ordinal
        self.deliver(self.home(task), AppendLog(task, incarnation, "all" in words, deltas, start, ordinal))

    def do_append_ack(self, words: list[str], given: Given) -> None:
        """``append_ack c.1 from=7 has=c:3,a:2``"""
        slot = SlotId(int(given["from"]))
        message = AppendAck(*self.life(words[0]), slot, "anew" not in words, self.lengths(given.get("has", "")))
        self.deliver(slot, message)

    def do_update(self, words: list[str], given: Given) -> None:
        """``update b.1 3 on=2``: a snapshot for the standby."""
        task, life = self.life(words[0])
        snapshot = self.snapshot(task, life, int(words[1]), given)
        names = tuple(f"object-{i}" for i in range(1, snapshot.checkpoint + 1))
        message = StandbyUpdate(task, life, snapshot.checkpoint, snapshot.previous, names)
        self.deliver(self.home(task), message, standby_payload([encode_snapshot(snapshot)]))

    # ------------------------------------------------------------------ the slot's own events

    def snapshot(self, task: TaskId, life: Incarnation, checkpoint: int, given: Given) -> Snapshot:
        """State that says which barriers it has seen; ``in`` and ``out`` are the positions of all its channels."""
        plan = self.slot.plan
        return Snapshot(
            SNAPSHOT_FORMAT,
            task,
            life,
            CheckpointId(checkpoint),
            CheckpointId(int(given["on"])) if given.get("on") else None,
            tuple((c.id, int(given.get("in", 0))) for c in plan.inputs[task]),
            tuple((c.id, int(given.get("out", 0))) for c in plan.outputs[task]),
            (),
            int(given.get("offset", 0)),
            0,
            "final" in given,
            b"",
            encode_value({f"b{checkpoint}": True}),
            journal_offset_bytes=int(given.get("journal", 0)),
            stops_at=CheckpointId(int(given.get("stops", 0))),
        )

    def do_emission(self, words: list[str], given: Given) -> None:
        """``emission b log=s3,k out=xyz consumed=195 snapshot=2 on=1 in=3 out_at=3 last``: one step of a task.

        ``last=2``: the last one of its second suspension.
        """
        task, life = self.life(words[0])
        outputs = []
        channel = self.slot.plan.outputs[task][0]
        if "out" in given:
            for kind, count, payload in map(elements_of, given["out"].split("+")):
                outputs.append(Output(channel.id, kind, count, CheckpointId(0), payload))
        snapshot = None
        if "snapshot" in given:
            checkpoint = CheckpointId(int(given["snapshot"]))
            if channel.receiver is not None:
                is_final = "final" in given
                kind, label = (ElementKind.END, CheckpointId(0)) if is_final else (ElementKind.BARRIER, checkpoint)
                outputs.append(Output(channel.id, kind, 1, label, b""))
            snapshot = self.snapshot(task, life, checkpoint, {**given, "out": given.get("out_at", "0")})
        inputs = self.slot.plan.inputs[task]
        consumed: tuple[tuple[ChannelId, int, int], ...] = ()
        if "consumed" in given:
            received_seq = self.slot.hosted[task].inputs.receivers[inputs[0].id].next_seq
            consumed = ((inputs[0].id, received_seq, int(given["consumed"])),)
        read = int(given.get("read", 0))
        log = entries_of(given.get("log", ""))
        last = int(given.get("last", "last" in words))
        emission = TaskEmission(log, tuple(outputs), consumed, snapshot, journal_read_bytes=read, suspension=last)
        self.post(happened.StepEmitted(*self.thread(words[0]), emission))

    def do_ends(self, words: list[str], given: Given) -> None:
        """``ends b at=5``: the log of b has ended, its output is at 5."""
        task, thread = self.thread(words[0])
        channel = self.slot.plan.outputs[task][0]
        self.post(happened.LogEndReached(task, thread, {channel.id: int(given.get("at", 0))}))

    def do_wants(self, words: list[str], given: Given) -> None:
        """``wants a``: a source is live and takes more in."""
        self.post(happened.JournalWanted(*self.thread(words[0])))

    def do_in(self, words: list[str], given: Given) -> None:
        """``in a xyz``: bytes have come in."""
        self.post(happened.ProducerDataRead(*self.life(words[0]), words[1].encode()))

    def do_broken(self, words: list[str], given: Given) -> None:
        """``broken a``: the connection to the producer has failed."""
        self.post(happened.ProducerFailed(*self.life(words[0]), "connection refused"))

    def do_reads_what_is_not_there(self, words: list[str], given: Given) -> None:
        self.post(happened.JournalMissed(*self.thread(words[0])))

    def do_needs(self, words: list[str], given: Given) -> None:
        channel = self.channel(words[0])
        self.post(happened.ElementsNeeded(*self.thread("abcdefgh"[channel.receiver]), channel.id, int(words[1])))

    def do_await(self, words: list[str], given: Given) -> None:
        self.post(happened.ReplicationAwaited(*self.thread(words[0]), int(words[1])))

    def do_announces(self, words: list[str], given: Given) -> None:
        """``announces b.2 17 a->b``: in single-step mode, it waits for the coordinator's answer."""
        self.post(happened.StepAnnounced(*self.thread(words[0]), self.channel(words[2]).id, int(words[1])))

    def do_announce_ack(self, words: list[str], given: Given) -> None:
        """``announce_ack b.2 17 a->b``"""
        task, life = self.life(words[0])
        self.deliver(COORDINATOR, AnnounceAck(task, life, self.channel(words[2]).id, int(words[1])))

    def do_opened(self, words: list[str], given: Given) -> None:
        """``opened c 3 before=5``, ``opened c 3 unknown``: the system does not say what it has."""
        superseded = int(given["before"]) if "before" in given else None
        self.post(happened.SinkOpened(*self.life(words[0]), int(words[1]), superseded, "unknown" not in words))

    def do_confirmed(self, words: list[str], given: Given) -> None:
        self.post(happened.SinkConfirmed(*self.life(words[0]), int(words[1])))

    def do_written(self, words: list[str], given: Given) -> None:
        """``written NAME``, ``written NAME failed``"""
        error = "the disk is full" if "failed" in words else ""
        payload = b"" if error else standby_payload([encode_snapshot(self.shell.written[words[0]])])
        self.post(happened.SnapshotWritten(words[0], payload, error))

    def do_read(self, words: list[str], given: Given) -> None:
        """``read task b.2 1,2 out=3``: the store's snapshots of these checkpoints; ``failed`` instead of them."""
        task, life = self.life(words[1])
        restored = None
        if "failed" not in words:
            numbers = [int(n) for n in words[2].split(",")]
            bases = ("", *map(str, numbers))
            pairs = zip(bases, numbers, strict=False)
            snapshots = [self.snapshot(task, life, n, {**given, "on": base}) for base, n in pairs]
            objects = [("", [encode_snapshot(snapshot)]) for snapshot in snapshots]
            restored = restore_from(objects, self.shell.new_mirror(task))
        purpose = TaskRead(task, life) if words[0] == "task" else StandbyRead(task, life)
        self.post(happened.SnapshotsRead(purpose, restored, "" if restored else "no such object"))

    def do_raised(self, words: list[str], given: Given) -> None:
        task, life = self.life(words[0])
        at, raised = InputRange(ChannelId(0), 3, 1), ("split", "'x'", "ValueError: no", "")
        failed = TaskFailed(task, life, at, *raised, Blame.JOB, Recourse.RETRY)
        self.post(happened.ThreadRaised(self.thread(words[0])[1], failed))

    def do_gone(self, words: list[str], given: Given) -> None:
        self.post(happened.PeerGone(SlotId(int(words[0]))))

    def do_back(self, words: list[str], given: Given) -> None:
        self.post(happened.PeerBack(SlotId(int(words[0]))))

    def do_tick(self, words: list[str], given: Given) -> None:
        """A heartbeat; ``tick after_ms=30000``: a long time later."""
        self.shell.now += int(given.get("after_ms", 100)) * 1_000_000
        self.post(happened.HeartbeatDue(self.shell.now))
