"""``@service``: only the first incarnation makes the call."""

from __future__ import annotations

import cloudpickle
import pytest

from clonos.core.log.call_outcomes import CallInDoubt, CallNeverHappened, RecordedError, ReturnedError
from clonos.core.ports.recorder import running
from clonos_services import clock, random
from clonos_services.calls import RequestUnencodable
from clonos_services.service import Service, ServiceInvalid, service
from tests.harnesses.fake_recorder import FakeRecorder


class Refused(Exception):
    """The outside said no."""


class Shop:
    """An outside that counts what it is asked, and never answers twice the same."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def ask(self, key: str) -> int:
        self.keys.append(key)
        return len(self.keys)


SHOP = Shop()


@pytest.fixture(autouse=True)
def _an_empty_shop() -> None:
    SHOP.keys.clear()


@service
def price(item: str, *, currency: str = "EUR") -> tuple[str, str, int]:
    """Price of an item."""
    return item, currency, SHOP.ask("")


@service(raises=Refused)
def refuse(item: str) -> None:
    SHOP.ask("")
    raise Refused(item)


@service(effect=True)
def pay(amount: int, idempotency_key: str = "") -> int:
    return SHOP.ask(idempotency_key)


@service(effect=True, idempotent=True)
def pay_again(amount: int, idempotency_key: str = "") -> int:
    return SHOP.ask(idempotency_key)


def find_payment(key: str, amount: int) -> int:
    assert amount == 5
    if key not in SHOP.keys:
        raise CallNeverHappened
    return 100 + SHOP.keys.index(key)


@service(effect=True, reconcile=find_payment)
def pay_once(amount: int, idempotency_key: str = "") -> int:
    return SHOP.ask(idempotency_key)


class Died(BaseException):
    """The process ends here."""


def killed_during_the_call(recorder: FakeRecorder, function: Service[[int], int], before: bool) -> FakeRecorder:
    """The successor of a life that announced a call with an effect, and died right before or right after it."""

    def die(amount: int, idempotency_key: str = "") -> int:
        if not before:
            SHOP.ask(idempotency_key)
        raise Died

    dying = Service(die, function.name, True, function.idempotent, function.reconcile, None, ())
    with running(recorder), pytest.raises(Died):
        dying(5)
    assert [tag for tag, _ in recorder.log] == ["INTENT"]
    return recorder.successor()


def test_outside_a_job_a_service_calls_its_function() -> None:
    assert price("tea") == ("tea", "EUR", 1)
    assert price("tea") == ("tea", "EUR", 2)
    assert vars(price)["__name__"] == "price"
    assert price.__doc__ == "Price of an item."
    with pytest.raises(Refused):
        refuse("tea")


def test_the_next_incarnation_gets_the_logged_value_without_a_call() -> None:
    recorder = FakeRecorder()
    with running(recorder):
        first = [price("tea"), price("tea", currency="USD")]
    successor = recorder.successor()
    with running(successor):
        assert [price("tea"), price("tea", currency="USD")] == first
        assert price("tea") == ("tea", "EUR", 3)
    assert first == [("tea", "EUR", 1), ("tea", "USD", 2)]
    assert len(SHOP.keys) == 3


def test_the_next_incarnation_gets_the_logged_exception_without_a_call() -> None:
    recorder = FakeRecorder()
    with running(recorder), pytest.raises(Refused, match="tea"):
        refuse("tea")
    with running(recorder.successor()), pytest.raises(Refused, match="tea"):
        refuse("tea")
    assert len(SHOP.keys) == 1


def test_an_exception_that_cannot_be_encoded_is_the_same_in_both_incarnations() -> None:
    @service
    def fail() -> None:
        raise type("Local", (Exception,), {})("no")

    recorder = FakeRecorder()
    with running(recorder), pytest.raises(RecordedError) as first:
        fail()
    with running(recorder.successor()), pytest.raises(RecordedError) as second:
        fail()
    assert first.value.args == second.value.args
    assert first.value.__notes__ == second.value.__notes__


def test_a_result_that_cannot_be_recorded_is_an_error_in_both_incarnations() -> None:
    @service
    def give() -> object:
        SHOP.ask("")
        return object()

    recorder = FakeRecorder()
    with running(recorder), pytest.raises(ReturnedError):
        give()
    with running(recorder.successor()), pytest.raises(ReturnedError):
        give()
    assert len(SHOP.keys) == 1


def test_an_exception_that_is_returned_is_refused() -> None:
    @service
    def give() -> Exception:
        return ValueError("not raised")

    with running(FakeRecorder()), pytest.raises(ServiceInvalid, match="Raise it"):
        give()


def test_services_called_inside_a_service_are_not_recorded_separately() -> None:
    @service
    def dice() -> tuple[float, object]:
        return random.random(), (clock.now(), price("tea"))

    recorder = FakeRecorder()
    with running(recorder):
        first = dice()
    assert [tag for tag, _ in recorder.log] == ["CALL"]
    with running(recorder.successor()):
        assert dice() == first


def test_calls_are_identified_by_their_arguments() -> None:
    recorder = FakeRecorder()
    with running(recorder):
        price("tea")
        price("tea")
        price("jam")
        price("tea", currency="USD")
    requests = [request for _, request, _ in recorder.calls_made]
    assert requests[0] == requests[1]
    assert len(set(requests)) == 3
    assert all(len(request) == 16 for request in requests)


def test_arguments_without_a_stable_identity_are_refused_with_a_remedy() -> None:
    with running(FakeRecorder()), pytest.raises(RequestUnencodable, match=r"@service\(request="):
        price(object())  # type: ignore[arg-type]


def test_a_service_method_is_identified_by_its_request_function() -> None:
    class Client:
        name = "c"

        @service(request=lambda self, item: (self.name, item))
        def ask(self, item: str) -> str:
            return f"{self.name} {item} {SHOP.ask('')}"

    recorder = FakeRecorder()
    with running(recorder):
        assert Client().ask("tea") == "c tea 1"
    with running(recorder.successor()):
        assert Client().ask("tea") == "c tea 1"


def test_a_call_with_an_effect_is_logged_first_and_gets_its_key() -> None:
    recorder = FakeRecorder()
    with running(recorder):
        pay(5)
    assert [tag for tag, _ in recorder.log] == ["INTENT", "CALL"]
    assert SHOP.keys == [recorder.calls_made[0][2]]
    with running(recorder.successor()):
        pay(5)
    assert len(SHOP.keys) == 1


@pytest.mark.parametrize("before", [True, False])
def test_a_call_in_doubt_raises_and_is_not_repeated(before: bool) -> None:
    successor = killed_during_the_call(FakeRecorder(), pay, before)
    with running(successor), pytest.raises(CallInDoubt, match="pay"):
        pay(5)
    with running(successor.successor()), pytest.raises(CallInDoubt, match="pay"):
        pay(5)
    assert len(SHOP.keys) == (0 if before else 1)


@pytest.mark.parametrize("before", [True, False])
def test_an_idempotent_call_in_doubt_is_repeated_with_its_key(before: bool) -> None:
    successor = killed_during_the_call(FakeRecorder(), pay_again, before)
    with running(successor):
        assert pay_again(5) == len(SHOP.keys)
    assert len(SHOP.keys) == (1 if before else 2)
    assert len(set(SHOP.keys)) == 1


@pytest.mark.parametrize(("before", "outcome"), [(True, 1), (False, 100)])
def test_a_call_in_doubt_is_reconciled_by_its_key_and_arguments_and_the_answer_is_recorded(
    before: bool, outcome: int
) -> None:
    successor = killed_during_the_call(FakeRecorder(), pay_once, before)
    with running(successor):
        assert pay_once(5) == outcome
    with running(successor.successor()):
        assert pay_once(5) == outcome
    assert len(SHOP.keys) == 1


def test_an_exception_of_reconcile_is_the_outcome_and_is_raised_again_in_a_replay() -> None:
    asked = []

    def find(key: str, amount: int) -> int:
        asked.append(key)
        raise Refused("later", amount)

    @service(effect=True, reconcile=find, raises=Refused)
    def pay_if_allowed(amount: int) -> int:
        return amount

    successor = killed_during_the_call(FakeRecorder(), pay_if_allowed, before=True)
    with running(successor), pytest.raises(Refused, match="later"):
        pay_if_allowed(5)
    with running(successor.successor()), pytest.raises(Refused, match="later"):
        pay_if_allowed(5)
    assert len(asked) == 1


def test_calls_made_by_reconcile_have_their_own_keys() -> None:
    keys: list[str] = []

    @service
    def inner(reported: str, idempotency_key: str = "") -> str:
        keys.append(idempotency_key)
        return reported

    def find(key: str, amount: int) -> int:
        inner("is it there?")
        raise CallNeverHappened

    @service(effect=True, reconcile=find)
    def pay_through_another(amount: int) -> int:
        inner("pay")
        return amount

    first = FakeRecorder()
    with running(first):
        pay_through_another(5)
    successor = FakeRecorder(tuple(first.log[:1]), life=1)
    with running(successor):
        assert pay_through_another(5) == 5
    made, question, again = keys
    assert made == again != question


def test_an_object_that_cannot_be_a_service_is_refused_where_it_is_declared() -> None:
    async def later() -> None: ...

    with pytest.raises(ServiceInvalid, match="asynchronous"):
        service(later)
    with pytest.raises(ServiceInvalid, match="effect=True"):
        service(idempotent=True)(find_payment)


def test_a_service_is_pickled_in_a_function_with_the_exceptions_of_its_module() -> None:
    source = '''
class Banned(Exception):
    """Of the job's own file."""

@service(raises=Banned)
def allowed(word):
    raise Banned(word)

def step(word):
    try:
        allowed(word)
    except Banned as error:
        return error.args
'''
    job_file = {"__name__": "a_job_file", "service": service}
    exec(source, job_file)  # noqa: S102  a module that travels by value
    step = cloudpickle.loads(cloudpickle.dumps(job_file["step"]))
    recorder = FakeRecorder()
    with running(recorder):
        assert step("spam") == ("spam",)
    with running(recorder.successor()):
        assert step("spam") == ("spam",)
    assert len(recorder.calls_made) == 1
