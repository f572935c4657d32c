"""``@service``: a user function as a causal service, called once; a replay returns its recorded outcome."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MethodType
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from clonos.core.log.asked import code_of_service
from clonos.core.log.call_outcomes import declare_exception
from clonos.core.model.errors import JobError
from clonos.core.model.wrong_calls import explains_calls
from clonos_services.calls import reconciled, recorded_call

KEY_PARAMETER: Final = "idempotency_key"

P = ParamSpec("P")
R = TypeVar("R")


class ServiceInvalid(JobError):
    """A function cannot be a service."""

    service: str
    problem: str

    def __str__(self) -> str:
        return f"{self.service} cannot be a service: {self.problem}"


_stand_ins: Mapping[str, Callable[..., Any]] = {}


@contextmanager
def answered_by(stand_ins: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Replaces services by functions inside the context, by name and in all jobs of this process, for tests.

    A function with a method ``reconcile`` replaces the service's ``reconcile=`` too.
    """
    global _stand_ins
    before, _stand_ins = _stand_ins, dict(stand_ins)
    try:
        yield
    finally:
        _stand_ins = before


class Service(Generic[P, R]):
    """Function whose calls are recorded, made by ``@service``. It is called, documented and pickled like the
    function."""

    def __init__(
        self,
        function: Callable[P, R],
        name: str | None,
        effect: bool,
        idempotent: bool,
        reconcile: Callable[Concatenate[str, ...], R] | None,
        request: Callable[..., object] | None,
        raises: tuple[type[Exception], ...],
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name: str = name or str(getattr(function, "__qualname__", function))
        self.effect = effect
        self.idempotent = idempotent
        self.reconcile = reconcile
        self.request = request
        self.raises = raises
        self.takes_key = _takes_key(function)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ServiceInvalid(self.name, "it is asynchronous. Write it as a plain function.")
        if (idempotent or reconcile is not None) and not effect:
            raise ServiceInvalid(self.name, "idempotent= and reconcile= apply to effects only. Add effect=True.")
        self._declare()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        def perform(key: str) -> object:
            named: dict[str, Any] = dict(kwargs)
            function = _stand_ins.get(self.name, self.function)
            takes_key = self.takes_key if function is self.function else _takes_key(function)
            if takes_key:
                named.setdefault(KEY_PARAMETER, key)
            return self._outcome(lambda: function(*args, **named))

        def reconcile(key: str) -> object:
            asked = getattr(_stand_ins.get(self.name), "reconcile", self.reconcile)
            assert asked is not None, self.name
            return self._outcome(lambda: asked(key, *args, **kwargs))

        def identify() -> object:
            if self.request is not None:
                return self.request(*args, **kwargs)
            return (args, tuple(sorted(kwargs.items()))) if kwargs else args

        again = perform if self.idempotent else None
        in_doubt = again if self.reconcile is None else reconciled(reconcile, perform)
        outcome = recorded_call(self.name, identify, perform, effect=self.effect, in_doubt=in_doubt)
        return outcome  # type: ignore[return-value]  # decoding returns the encoded value

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<service {self.name}>"

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._declare()

    def _declare(self) -> None:
        code_of_service(self.name)
        for exception_class in self.raises:
            declare_exception(exception_class)

    def _outcome(self, call: Callable[[], object]) -> object:
        returned = call()
        if isinstance(returned, BaseException):  # a recorded exception would be raised
            raise ServiceInvalid(self.name, f"it returned {returned!r}. Raise it, or return plain values.")
        return returned


def _takes_key(function: Callable[..., Any]) -> bool:
    try:
        return KEY_PARAMETER in inspect.signature(function).parameters
    except ValueError:  # a built-in function or class, such as int, which shows no parameters
        return False


@overload
def service(function: Callable[P, R], /) -> Service[P, R]: ...


@overload
def service(
    *,
    name: str | None = None,
    effect: bool = False,
    idempotent: bool = False,
    reconcile: Callable[Concatenate[str, ...], Any] | None = None,
    request: Callable[..., object] | None = None,
    raises: type[Exception] | tuple[type[Exception], ...] = (),
) -> Callable[[Callable[P, R]], Service[P, R]]: ...


@explains_calls
def service(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: bool = False,
    idempotent: bool = False,
    reconcile: Callable[Concatenate[str, ...], Any] | None = None,
    request: Callable[..., object] | None = None,
    raises: type[Exception] | tuple[type[Exception], ...] = (),
) -> Any:
    """Makes a function a causal service; outside a job it stays the plain function::

        @service(raises=PriceUnknown)
        def price_of(item: str) -> float: ...

    The function is called once per input and returns plain values; its exceptions are recorded too. If a process fails
    during the call, the function is called again, so it runs *at least once*, which suits a read. A parameter named
    ``idempotency_key`` gets a key that is the same in each repetition.

    Args:
        name: name in messages and in the log; by default that of the function.
        effect: the call changes an external system. It is announced in the log and to a keeper before it is made, and
            made *at most once*; a step that uses it declares ``effects=True``. If a process fails during the call, its
            outcome is in doubt: the next two arguments resolve it, and without them ``CallInDoubt`` is raised.
        idempotent: a call in doubt is made again, with the same key.
        reconcile: a call in doubt is resolved by this function, which gets the key and the arguments of the call, and
            asks the external system. Its return value or exception is the outcome; ``CallNeverHappened`` means that the
            call did not take place, and it is then made under its key.
        request: returns the plain values that identify the call, from the same arguments, where the arguments are not
            plain values (``self`` of a method, for example).
        raises: exception classes to raise as themselves, from the job's own file and from other packages; Python's own
            need no declaration. Any other exception, or an exception with other than plain values, becomes
            ``RecordedError``.

    Raises: ServiceInvalid when the function is asynchronous, or ``idempotent`` or ``reconcile`` is set without
    ``effect``.
    """
    classes = raises if isinstance(raises, tuple) else (raises,)

    def decorate(decorated: Callable[..., Any]) -> Service[..., Any]:
        return Service(decorated, name, effect, idempotent, reconcile, request, classes)

    return decorate if function is None else decorate(function)
