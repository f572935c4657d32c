"""Tools of agents: typed functions of Python that a model may call, each call one entry of the log.

A model names a tool and gives arguments as JSON. They are checked by the annotations of the function; the model sees
what is wrong, and calls again. A tool with an effect is a ``@service``: announced first, made once.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, Generic, ParamSpec, TypedDict, TypeVar, Unpack, get_type_hints, overload

import msgspec

from clonos.core.model.errors import JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos.io.system.json_decoders import decoder_of
from clonos.io.system.wall_clock import Timedelta
from clonos_services.ai_approval import Approval, Approve, refusal_of
from clonos_services.ai_habits import approve_problem, notify_problem
from clonos_services.ai_shown import DONE, ErrorShown, ShownService, ToolError, as_json
from clonos_services.service import KEY_PARAMETER, Service, ServiceInvalid

P = ParamSpec("P")
R = TypeVar("R")

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that servers take."""

ARGUMENTS: Final = re.compile(r"^ *Args:\n((?: +\S.*\n?|\n)*)", re.MULTILINE)
ARGUMENT: Final = re.compile(r"\*{0,2}(\w+)(?: \([^)]*\))?: *(.*)")
REFERENCE: Final = "#/$defs/{name}"


class ToolInvalid(JobError):
    """A function cannot be a tool."""

    tool: str
    problem: str

    def __str__(self) -> str:
        return f"the function {self.tool} cannot be a tool: {self.problem}."


class ArgumentsInvalid(Exception):
    """A model has given arguments that do not fit a tool. The text is for the model."""


class ToolOptions(TypedDict, total=False):
    """Options of ``tool``, which describes them."""

    name: str | None
    description: str | None
    key: str | None
    effect: bool
    idempotent: bool
    reconcile: Callable[..., Any] | None
    approve: Approve
    approve_within: str | float | Timedelta | None
    notify: Callable[[Approval], object] | None
    raises: type[Exception] | tuple[type[Exception], ...]


class Tool(Generic[P, R]):
    """Function that a model may call, made by ``@ai.tool``. Your code calls it as the function."""

    def __init__(self, function: Callable[P, R], name: str, service: Service[P, R], options: ToolOptions) -> None:
        functools.update_wrapper(self, function)
        self.name, self.service = name, service
        resolving = service.effect, service.idempotent, service.reconcile
        self._shown = ShownService(function, name, *resolving, service.request, service.raises)
        if not NAME.fullmatch(name):
            raise ToolInvalid(name, "its name is not 1 to 64 letters, digits, _ and -. Give name=")
        self.key_parameter = key = options.get("key")
        self.approve: Approve = options.get("approve", False)
        self.approve_within, self.notify = options.get("approve_within"), options.get("notify")
        if self.notify is not None and (problem := notify_problem(self.notify)):
            raise ToolInvalid(name, problem)
        self._fields = _fields_of(self.name, function, key)
        if problem := approve_problem(self.approve, self._fields):
            raise ToolInvalid(name, problem)
        self._arguments = _arguments_class(self.name, self._fields)
        documented = inspect.getdoc(function) or ""
        parameters = _schema(self.name, self._arguments, function, documented)
        about = options.get("description") or ARGUMENTS.sub("", documented).strip()
        self.definition: dict[str, Any] = {
            "type": "function",
            "function": {"name": self.name, "description": about, "parameters": parameters},
        }

    @property
    def has_effect(self) -> bool:
        """Whether the tool changes an external system."""
        return self.service.effect

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.service(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_arguments"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._arguments = _arguments_class(self.name, self._fields)

    def checked(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a model as those of the function. Raises: ArgumentsInvalid."""
        try:
            found = msgspec.convert(dict(arguments), self._arguments)
        except (msgspec.ValidationError, RecursionError) as error:
            raise ArgumentsInvalid(f"the arguments are wrong: {error}") from error
        given = {name: getattr(found, name) for name in self._fields}
        return {name: value for name, value in given.items() if value is not msgspec.UNSET}

    def refusal(self, arguments: Mapping[str, Any], key: Any, asked: MutableMapping[str, int]) -> str | None:
        """Awaits the approval of a call, if it needs one. Returns what the model sees of a refusal, else None.

        ``asked``: how often the conversation has asked under the name of each event. This question is added.

        Raises: ToolInvalid: ``approve`` returns no name; CallCancelled; errors of ``approve`` and ``notify``.
        """
        approve = self.approve
        event: object = approve(**arguments) if callable(approve) else self.name if approve else None
        if event is None:
            return None
        if not isinstance(event, str) or not event:
            raise ToolInvalid(self.name, f"approve= returned {event!r:.80}, expected the name of an event, or None")
        return refusal_of(Approval(event, key, self.name, arguments), asked, self.approve_within, self.notify)

    def shown(self, arguments: Mapping[str, Any], key: Any) -> str:
        """Calls the function; returns what the model sees of its result, or of its error.

        Raises: JobError; any error of a tool with an effect but a ToolError.
        """
        named: dict[str, Any] = dict(arguments)
        if self.key_parameter is not None:
            named[self.key_parameter] = key
        called: Callable[..., Any] = self._shown
        found = called(**named)
        if isinstance(found, ErrorShown):
            return f"error: {found.text}"
        if found is None:
            return DONE
        return found if isinstance(found, str) else as_json(found)


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


@explains_calls
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]) -> Any:
    """Makes a function a tool of agents::

        @ai.tool(effect=True, reconcile=find_refund, approve=lambda order, cents: f"refund of {order}")
        def refund(order: str, cents: int, idempotency_key: str = "") -> str:
            \"\"\"Pay the customer back.

            Args:
                order: number of the order.
                cents: amount to pay.
            \"\"\"

    The model sees the name, the docstring and a JSON schema of the annotations: numbers, texts, ``Literal``, lists,
    dicts, enums, dates, dataclasses, TypedDicts, ``msgspec.Struct``, and ``None`` or a default where it may leave one
    out. Arguments that do not fit are an error that the model sees, and the function is not called. Its result is shown
    as it is if it is a text, and else as JSON.

    Each call is one entry of the log, as one of a ``@service``. An exception is shown to the model; of a tool with an
    effect only ``ai.ToolError`` is, which says that nothing has happened. Any other one ends the call of the agent.

    Args:
        name: name for the model; by default that of the function.
        description: text for the model; by default the docstring.
        key: name of the parameter that gets the key of the conversation. The model does not see it.
        effect: the call changes an external system: it is announced first, and made at most once. A parameter
            ``idempotency_key`` gets a key that is the same in each repetition, and the model does not see it.
        idempotent: a call in doubt is made again, with the same key.
        reconcile: resolves a call in doubt: see ``service``.
        approve: the call waits for an ``Event`` of the key of the conversation. True: its name is that of the tool;
            otherwise a function of the arguments returns the name, or None for a call that needs no approval. A
            conversation asks under each name once: later questions have " (2)", " (3)" and so on after it, and
            ``notify`` gets that name. The value of the event is True, or a dict whose "approved" is True, and whose
            "arguments", if it has them, are those of the call; anything else refuses. The model is told a text, or what
            the dict has as "reason".
        approve_within: the length of time after which no answer is a refusal.
        notify: called with one ``Approval`` before the call waits, to ask people for it. It is one entry of the log,
            and may be made again if its process dies.
        raises: exception classes of the function: see ``service``.

    Raises: ToolInvalid: a parameter has no annotation, or one without a JSON schema; ``approve`` or ``notify`` cannot
    be called with what they get; the function cannot be a ``service``.
    """
    raises = options.get("raises", ())
    classes = raises if isinstance(raises, tuple) else (raises,)
    resolving = options.get("effect", False), options.get("idempotent", False), options.get("reconcile")

    def decorate(decorated: Callable[..., Any]) -> Tool[..., Any]:
        name = options.get("name") or str(getattr(decorated, "__name__", ""))
        try:
            recorded = Service(decorated, name, *resolving, _identity, (*classes, ToolError))
        except ServiceInvalid as error:
            raise ToolInvalid(name, error.problem.rstrip(".")) from error
        return Tool(decorated, name, recorded, options)

    return decorate if function is None else decorate(function)


def _identity(*args: Any, **kwargs: Any) -> object:
    return msgspec.to_builtins((args, tuple(sorted(kwargs.items()))), order="deterministic")


def _fields_of(tool: str, function: Callable[..., Any], key: str | None) -> dict[str, tuple[Any, bool]]:
    """Returns the type of each argument that a model gives, and whether it may be left out. Raises: ToolInvalid."""
    parameters = inspect.signature(function).parameters
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:
        raise ToolInvalid(tool, f"its annotations cannot be read: {type(error).__name__}: {error}") from error
    if key is not None and key not in parameters:
        raise ToolInvalid(tool, f"key= names {key!r}, which is none of its parameters")
    fields = {}
    for name, parameter in parameters.items():
        if name in (key, KEY_PARAMETER):
            continue
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolInvalid(tool, f"its parameter {parameter} cannot be given by name")
        if name not in hints:
            raise ToolInvalid(tool, f"its parameter {name} has no annotation, such as {name}: str")
        fields[name] = hints[name], parameter.default is not parameter.empty
    return fields


def _arguments_class(tool: str, fields: Mapping[str, tuple[Any, bool]]) -> type[msgspec.Struct]:
    members = [
        (name, kind | msgspec.UnsetType, msgspec.UNSET) if has_default else (name, kind)
        for name, (kind, has_default) in fields.items()
    ]
    made = msgspec.defstruct(tool, members, kw_only=True, forbid_unknown_fields=True)
    decoder_of(made)  # before any thread converts to it
    return made


def _schema(
    tool: str, arguments: type[msgspec.Struct], function: Callable[..., Any], documented: str
) -> dict[str, Any]:
    """Returns the JSON schema of the arguments. Raises: ToolInvalid: a type has none."""
    try:
        (root,), parts = msgspec.json.schema_components((arguments,), ref_template=REFERENCE)
    except (TypeError, RecursionError) as error:
        raise ToolInvalid(tool, f"a parameter cannot be described as JSON: {error}") from error
    own = root["$ref"].rpartition("/")[2]
    described = parts.pop(own)
    described.pop("title", None)
    texts = _argument_texts(documented)
    defaults = inspect.signature(function).parameters
    for name, field in described["properties"].items():
        if name in texts:
            field.setdefault("description", texts[name])
        default = defaults[name].default
        if default is not inspect.Parameter.empty:
            field["default"] = msgspec.to_builtins(default, str_keys=True)
    return {**described, "$defs": parts} if parts else described


def _argument_texts(documented: str) -> dict[str, str]:
    """Returns the text of each argument in the section ``Args:`` of a docstring."""
    if (section := ARGUMENTS.search(documented)) is None:
        return {}
    texts: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc("\n" + section[1]).splitlines():
        if (found := ARGUMENT.match(line)) is not None:
            name, texts[found[1]] = found[1], found[2]
        elif name and line.strip():
            texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts
