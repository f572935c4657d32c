"""``redis.sink``: an immediate sink that adds rows to streams, with the number of the next row in the same server.

The rows of a batch, the check that no later incarnation has registered, and the number of the next row are one script,
which the server runs as a whole. Therefore each row is added once, whatever fails, and a fenced incarnation adds
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Unpack

from clonos.connectors.connector_errors import InvalidConnector
from clonos.connectors.kit.broker_sink import BrokerSink, Outgoing, Published, SinkOptions, Target
from clonos.connectors.kit.external_system import NumberLost, SystemRefused
from clonos.connectors.kit.source_options import AddressOptions
from clonos.connectors.redis.redis_server import RedisServer
from clonos.core.model.errors import EnvironmentFault
from clonos.core.model.wrong_calls import explains_calls
from clonos.operators.connector_contract import Registration, WriterFenced, WriterIdentity
from clonos.operators.lineage import Dataset

CONNECTOR: Final = "redis.sink"
ID_FIELD: Final = b"clonos-id"
DATA_FIELD: Final = "data"
FIELDS_MAX: Final = 1_000
"""Further fields of an entry. Lua passes at most 8,000 values on: a script with more ends, and its first rows stay."""
SCRIPT_ROWS: Final = 500
SCRIPT_BYTES: Final = 1 << 20
"""The server does nothing else while it runs a script."""

REGISTER: Final = """
local generation, incarnation, restored = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local found = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'next', 'highest', 'is_new')
local registered, by, number, highest = tonumber(found[1]), tonumber(found[2]), tonumber(found[3]), tonumber(found[4])
local is_new = found[5]
if not registered then
  if restored > 0 then return {'lost'} end
  registered, by, number, highest, is_new = generation, incarnation, 0, 0, '0'
end
if registered > generation or (registered == generation and by > incarnation) then
  return {'fenced', registered, by}
end
if highest < restored then return {'lost'} end
if registered < generation then number, is_new = restored, '1' end
redis.call('HSET', KEYS[1], 'generation', generation, 'incarnation', incarnation, 'next', number, 'highest', highest,
  'is_new', is_new)
return {'registered', number, (is_new == '1' and highest > number) and highest or -1}
"""
"""The first registration of a generation sets the number to that of its snapshot. Until the generation has a row,
each of its registrations says up to which number rows come again."""

WRITE: Final = """
local found = redis.call('HMGET', KEYS[1], 'generation', 'incarnation', 'next', 'highest')
local number, following, most = tonumber(ARGV[3]), tonumber(found[3]), tonumber(ARGV[4])
if not found[1] then return {'lost'} end
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return {'fenced', tonumber(found[1]), tonumber(found[2])} end
if number > following then return {'lost'} end
local at, refused = 5, ''
while at <= #ARGV do
  local count = tonumber(ARGV[at + 1])
  if number >= following then
    local add = {'XADD', KEYS[tonumber(ARGV[at])]}
    if most > 0 then add[3], add[4], add[5] = 'MAXLEN', '~', most end
    add[#add + 1] = '*'
    for field = at + 2, at + 1 + count do add[#add + 1] = ARGV[field] end
    local added = redis.pcall(unpack(add))
    if type(added) == 'table' and added.err then refused = added.err break end
    following = number + 1
  end
  number, at = number + 1, at + 2 + count
end
redis.call('HSET', KEYS[1], 'next', following, 'highest', math.max(following, tonumber(found[4])), 'is_new', '0')
return {'written', following, refused}
"""
"""Rows before the number are there. An entry that the server refuses ends the script, with the rows before it."""


class EntrySinkOptions(AddressOptions, SinkOptions, total=False):
    """Options of ``redis.sink``, which describes them."""

    entries_max: int | None


class EntrySink(BrokerSink):
    """Description of streams and of how rows become entries."""

    connector, target_word, payload_word = CONNECTOR, "key", "data"

    def __init__(self, key: Target, server: RedisServer, options: EntrySinkOptions) -> None:
        super().__init__(key, options)
        self.server, self.entries_max = server, options.get("entries_max") or 0

    def __repr__(self) -> str:
        key = self.target if isinstance(self.target, str) else "a function"
        return f"{CONNECTOR}({key!r}, url={self.server.place!r})"

    def datasets(self) -> list[Dataset]:
        """See ``lineage.NamingConnector``."""
        return self.server.datasets([self.target])

    def describe_output(self) -> list[tuple[str, str]]:
        """Returns what a resume compares."""
        return [("server", self.server.place), *([("key", self.target)] if isinstance(self.target, str) else [])]

    def check_start(self) -> None:
        """Asks the server for an answer. Raises: SystemRefused, SystemUnreachable."""
        with self.server.asking("connecting"), self.server.client() as client:
            client.ping()

    def publisher(self) -> EntryPublisher:
        """See ``BrokerSink``."""
        return EntryPublisher(self.server, self.entries_max)

    def checked_target(self, found: Any) -> str:
        """See ``BrokerSink``. Raises: TypeError, UnicodeEncodeError: it is not the key of a stream."""
        if not isinstance(found, str) or not found:
            raise TypeError(f"{found!r:.80} is not the key of a stream")
        found.encode()
        return found

    def properties(self, message_id: str, headers: Mapping[str, Any], content_type: str | None) -> list[bytes]:
        """See ``BrokerSink``. Raises: TypeError, UnicodeEncodeError: a header cannot be a field."""
        fields, given = [ID_FIELD, message_id.encode()], dict[Any, Any](headers)
        if len(given) > FIELDS_MAX:
            raise TypeError(f"{len(given)} further fields are more than an entry may have, at most {FIELDS_MAX}")
        for name, value in given.items():
            if not isinstance(name, str) or name.encode() in (ID_FIELD, DATA_FIELD.encode()):
                raise TypeError(f"{name!r:.80} is not the name of a further field")
            if not isinstance(value, (str, bytes)):
                raise TypeError(f"{value!r:.80} is neither a str nor bytes")
            fields += [name.encode(), value.encode() if isinstance(value, str) else value]
        return fields


class EntryPublisher:
    """Connection of one sink task (``NumberingPublisher``). Its hash has the number of the next row."""

    def __init__(self, server: RedisServer, entries_max: int) -> None:
        self._server, self._client, self._entries_max = server, server.client(), entries_max
        self._hash = ""
        self._identity = WriterIdentity("", "", 0, 0)

    def register(self, identity: WriterIdentity, restored_number: int) -> Registration:
        """See ``NumberingPublisher``."""
        self._identity, self._hash = identity, f"clonos:{identity.job_id}/{identity.task_name}"
        arguments = [identity.generation, identity.incarnation, restored_number]
        number, superseded = self._run(REGISTER, [], arguments, restored_number)
        return Registration(number, superseded if superseded >= 0 else None)

    def publish(self, batch: list[Outgoing]) -> Published:
        """Adds entries. Raises: WriterFenced, NumberLost, SystemRefused."""
        following = batch[0].number
        failure: SystemRefused | EnvironmentFault | None = None
        try:
            for part in script_parts(batch):
                keys = list(dict.fromkeys(each.target for each in part))
                places = {key: place for place, key in enumerate(keys, 2)}
                arguments: list[Any] = [*self._identity[2:], part[0].number, self._entries_max]
                for each in part:
                    fields = [*each.properties, DATA_FIELD, each.payload]
                    arguments += [places[each.target], len(fields), *fields]
                following, refused = self._run(WRITE, keys, arguments, part[0].number)
                if refused:
                    error = self._server.library().ResponseError(refused.decode("utf-8", "replace"))
                    failure = self._server.failure(
                        f"adding to the stream {part[following - part[0].number].target}", error
                    )
                    break
        except EnvironmentFault as error:
            if isinstance(error, NumberLost):
                raise
            failure = error
        if isinstance(failure, SystemRefused):
            raise failure
        return Published({each.number for each in batch if each.number < following}, failure)

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _run(self, script: str, keys: list[str], arguments: list[Any], written: int) -> tuple[Any, Any]:
        """Returns the answer of a script.

        Raises: WriterFenced. NumberLost: the server does not have ``written``. SystemRefused, SystemUnreachable.
        """
        with self._server.asking(f"writing {self._hash}"):
            verdict, *answer = self._client.eval(script, 1 + len(keys), self._hash, *keys, *arguments)
        if verdict == b"lost":
            reason = "the server has restarted without its last writes, or somebody has deleted the hash"
            advice = "Let the server persist its writes (appendonly yes, appendfsync always) and evict no keys"
            raise NumberLost(f"the hash {self._hash} of Redis", written, reason, advice)
        if verdict == b"fenced":
            generation, incarnation = answer
            raise WriterFenced(
                f"incarnation {incarnation} of generation {generation} has registered in {self._hash}",
                by=(generation, incarnation),
            )
        first, second = answer
        return first, second


def script_parts(batch: list[Outgoing]) -> Iterator[list[Outgoing]]:
    """Yields parts of a batch for a script each, with no more rows and hardly more bytes than its limits."""
    part: list[Outgoing] = []
    size = 0
    for each in batch:
        part.append(each)
        size += len(each.payload) + sum(map(len, each.properties))
        if len(part) == SCRIPT_ROWS or size >= SCRIPT_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


@explains_calls
def sink(key: Target, **options: Unpack[EntrySinkOptions]) -> EntrySink:
    """Immediate sink that adds each row to a stream once, as the field ``data``, with an id in the field ``clonos-id``.

    After a rollback or ``--resume`` rows since the checkpoint come again, under new ids, and an alarm gives their
    numbers. The server keeps the number of the next row in a hash for each task, ``clonos:JOB/TASK``.

    Args:
        key: the key of the stream, or a function of the row.
        url: redis://user@host:6379/0, or rediss:// for TLS.
        password: password of the user, in place of that of the URL.
        ca: file with the certificates of the authorities to trust, in place of those of the system.
        certificate: file with the certificate and the key of the client, if the server asks for one.
        encode: a codec, a type or a function that makes the data. None: bytes as they are, a str in UTF-8, all else as
            JSON.
        headers: further fields, or a function of the row that returns them: str or bytes by their names.
        entries_max: about how many entries a stream keeps; older ones are trimmed. None: all.
        timeout: time for which the server may take nothing.

    Raises:
        InvalidConnector: an option cannot work.

    Example::

        stream.sink(redis.sink("totals", url="redis://shop@localhost", password=secrets.env("SHOP_PASSWORD")))
    """
    given: Any = key
    if not callable(given) and not (isinstance(given, str) and given):
        raise InvalidConnector(CONNECTOR, f"the key is {key!r:.80}", "Give the key of a stream, or a function.")
    most = options.get("entries_max")
    if most is not None and (type(most) is not int or most < 1):
        raise InvalidConnector(CONNECTOR, f"entries_max is {most!r:.80}", "Give a number of entries, or None.")
    return EntrySink(key, RedisServer(CONNECTOR, options), options)
