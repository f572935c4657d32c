"""Agents: the function of a ``stateful_map_async`` whose state is a conversation::

    helper = ai.agent(model, tools=[find_order, refund], instructions="You help customers.")
    texts.key_by("customer").stateful_map_async(helper, log_calls=True, effects=True)

For each record it asks the model, makes the calls of tools that the model asks for, one after the other, and asks
again, until the model answers. Each question and each call of a tool is one entry of the log: an agent whose process
dies goes on with the first call that the log does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from clonos.core.model.errors import JobError
from clonos.core.model.missing_names import attribute_missing
from clonos.core.model.wrong_calls import explains_calls
from clonos.core.ports.recorder import current, is_inside_call
from clonos.core.values import register
from clonos_services.ai_habits import AGENT_HINTS, AGENT_REPLY_HINTS, keyword_problem
from clonos_services.ai_reply import ModelReply, ToolCall, response_format
from clonos_services.ai_tool import NAME, ArgumentsInvalid, Tool
from clonos_services.awaiting import CallCancelled
from clonos_services.model_answer import ModelCallInvalid

REPLY, TURNS, CANCELLED = "reply", "turns", "cancelled"
"""How an agent may have ended."""

HAND_OVER: Final = "hand_over_to_"
NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}, "additionalProperties": False}


class AgentInvalid(JobError):
    """An agent cannot be made like this, or cannot run where it is called."""

    agent: str
    problem: str

    def __str__(self) -> str:
        return f"the agent {self.agent} cannot be used: {self.problem}."


@register
@dataclass(slots=True)
class Conversation:
    """State of a key of an agent.

    Attributes:
        agent: name of the agent that has the conversation.
        messages: what was said, in the form of the protocol, from the oldest that is retained: messages of the user, of
            the model with its calls of tools, and of tools. Instructions are not among them.
        prompt_tokens: tokens of all questions so far.
        completion_tokens: tokens of all replies so far.
        approvals: how often an approval was asked for under each name of an event.
    """

    agent: str
    messages: list[dict[str, Any]]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    approvals: dict[str, int] = field(default_factory=dict)


@register
@dataclass(frozen=True, slots=True)
class AgentReply:
    """Result of an agent for one record.

    Attributes:
        key: key of the conversation.
        text: what the model has said last; "" if it has said nothing.
        value: the object of the class ``response=``, None without it.
        agent: name of the agent that has replied.
        ended: "reply"; "turns" if the model still wanted to call tools after ``turns_max`` questions, which were not
            called; "cancelled" if a ``Cancel`` has ended it.
        turns: how often the model was asked.
        prompt_tokens: tokens of the questions for this record.
        completion_tokens: tokens of the replies for this record.
    """

    key: Any
    text: str
    value: Any
    agent: str
    ended: str
    turns: int
    prompt_tokens: int
    completion_tokens: int

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, AGENT_REPLY_HINTS)


@dataclass(frozen=True, eq=False, slots=True)
class Agent:
    """Function ``(key, conversation, record) -> (conversation, result)``, made by ``agent``."""

    name: str
    model: Callable[..., ModelReply]
    tools: Mapping[str, Tool[..., Any]]
    handovers: Mapping[str, Agent]
    instructions: str
    turns_max: int
    history_max: int
    response: type | None
    text: Callable[[Any], str] | None
    select: Callable[[Any, AgentReply], Any] | None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_effects(self) -> bool:
        """Whether a tool of it, or of an agent to which it hands over, has an effect."""
        return any(tool.has_effect for each in self.team().values() for tool in each.tools.values())

    def team(self) -> dict[str, Agent]:
        """Returns the agents that may have the conversation, by name. Raises: AgentInvalid: two have one name."""
        found = {self.name: self}
        waiting = [self]
        while waiting:
            for each in waiting.pop().handovers.values():
                if found.setdefault(each.name, each) is not each:
                    raise AgentInvalid(self.name, f"it hands over to two agents with the name {each.name}")
                waiting.append(each)
        return found

    def __call__(self, key: Any, conversation: Conversation | None, value: Any) -> tuple[Conversation, Any]:
        """Takes a record of a key. Raises: AgentInvalid; errors of the model; those of tools with effects."""
        if current() is None and is_inside_call():
            raise AgentInvalid(self.name, "its calls are not logged. Add log_calls=True to stateful_map_async")
        question = value if self.text is None else self.text(value)
        if not isinstance(question, str):
            raise TypeError(
                f"the record {question!r:.80} is not a text. Give text= of the agent, a function of the record"
            )
        course = _Course(self, key, conversation or Conversation(self.name, []), question)
        reply = course.run()
        return course.conversation(self.history_max), reply if self.select is None else self.select(value, reply)

    def ask(self, messages: Sequence[Mapping[str, Any]]) -> ModelReply:
        """Asks the model how a conversation goes on."""
        instructions = [{"role": "system", "content": self.instructions}] if self.instructions else []
        asked = dict(self.parameters)
        if definitions := [tool.definition for tool in self.tools.values()] + [
            *map(_hand_over, self.handovers.values())
        ]:
            asked["tools"] = definitions
        if self.response is not None:
            asked["response"] = self.response
        return self.model([*instructions, *messages], **asked)

    if not TYPE_CHECKING:  # a type checker must go on to report a missing attribute

        def __getattr__(self, attribute):
            raise attribute_missing(type(self), attribute, AGENT_HINTS)


class _Course:
    """Course of a conversation for one record."""

    def __init__(self, root: Agent, key: Any, before: Conversation, question: str) -> None:
        self._root, self._key, self._before, self._team = root, key, before, root.team()
        self._agent = self._team.get(before.agent, root)
        self._messages = [*before.messages, {"role": "user", "content": question}]
        self._approvals = dict(before.approvals)
        self._prompt_tokens = self._completion_tokens = self._turns = 0
        self._reply: ModelReply | None = None
        self._left = deque[ToolCall]()  # calls that the last reply asks for, and that have no answer yet

    def run(self) -> AgentReply:
        """Asks until the model answers, the turns are used up, or the call is cancelled."""
        try:
            ended = self._converse()
        except CallCancelled as cancelled:
            self._leave(f"not called: {cancelled}")
            ended = CANCELLED
        text, value = ("", None) if self._reply is None else (self._reply.text, self._reply.value)
        spent = self._turns, self._prompt_tokens, self._completion_tokens
        return AgentReply(self._key, text, value, self._agent.name, ended, *spent)

    def _converse(self) -> str:
        """Returns how it has ended. Raises: CallCancelled."""
        while self._turns < self._root.turns_max:
            asked = self._agent
            self._reply = self._ask()
            self._left = deque(self._reply.tool_calls)
            if not self._left:
                return REPLY
            if self._turns == self._root.turns_max:
                break
            while self._left:
                answer = self._answer(self._left[0])
                self._messages.append(self._left.popleft().result(answer))
                if self._agent is not asked:
                    self._leave(f"not called: {self._agent.name} has the conversation now")
                    self._left.clear()
        self._leave(f"not called: this was the last of {self._turns} turns")
        return TURNS

    def _ask(self) -> ModelReply:
        reply = self._agent.ask(self._messages)
        self._turns += 1
        self._prompt_tokens += reply.usage.prompt_tokens
        self._completion_tokens += reply.usage.completion_tokens
        self._messages.append(reply.message)
        return reply

    def _leave(self, why: str) -> None:
        """Answers the calls that are not made: a server refuses a conversation in which a call has no answer."""
        self._messages += [call.result(why) for call in self._left]

    def _answer(self, call: ToolCall) -> str:
        """Makes a call of a tool; returns what the model sees of it. Raises: CallCancelled."""
        if (other := self._agent.handovers.get(call.name)) is not None:
            self._agent = other
            return f"{other.name} has the conversation now"
        if (tool := self._agent.tools.get(call.name)) is None:
            known = ", ".join((*self._agent.tools, *self._agent.handovers)) or "none"
            return f"error: there is no tool {call.name!r}. The tools are: {known}"
        try:
            arguments = tool.checked(call.arguments)
        except ArgumentsInvalid as error:
            return f"error: {error}"
        refusal = tool.refusal(arguments, self._key, self._approvals)
        return tool.shown(arguments, self._key) if refusal is None else refusal

    def conversation(self, history_max: int) -> Conversation:
        """Returns the conversation as it is now, with the last ``history_max`` messages of the user and what followed
        each."""
        begins = [place for place, message in enumerate(self._messages) if message.get("role") == "user"]
        first = begins[-history_max] if len(begins) > history_max else 0
        return Conversation(
            self._agent.name,
            self._messages[first:],
            self._before.prompt_tokens + self._prompt_tokens,
            self._before.completion_tokens + self._completion_tokens,
            self._approvals,
        )


@explains_calls
def agent(
    model: Callable[..., ModelReply],
    *,
    tools: Sequence[Tool[..., Any]] = (),
    instructions: str = "",
    name: str = "agent",
    handovers: Sequence[Agent] = (),
    turns_max: int = 8,
    history_max: int = 20,
    response: type | None = None,
    text: Callable[[Any], str] | None = None,
    select: Callable[[Any, AgentReply], Any] | None = None,
    **parameters: Any,
) -> Agent:
    """Returns the function of a ``stateful_map_async`` with ``log_calls=True``, which has a conversation for each key.

    Args:
        model: the model, such as ``ai.chat(...)``.
        tools: functions with ``@ai.tool``. A step whose tools have effects declares ``effects=True``.
        instructions: the message of the system. It is no part of the state, so a new job may have other instructions.
        name: name of the agent.
        handovers: other agents that may take the conversation over, each by a tool ``hand_over_to_NAME`` of the model.
            An agent that has taken it over gets the next records of the key too.
        turns_max: how often the model is asked for one record. After that the agent replies with ``ended="turns"``, and
            the calls of tools that the last reply asks for are not made.
        history_max: how many records the conversation retains, each with what followed it. Older ones are dropped when
            an agent ends, whole, so that no call of a tool is without its answer.
        response: a class whose object the model replies with: see ``ai.chat``.
        text: a function of the record that returns what the user says; by default the record is a text.
        select: a function of record and ``AgentReply`` that returns the result; by default that is the reply.
        parameters: further parameters of the protocol, such as ``temperature=``.

    Raises: AgentInvalid: a limit is not positive, two tools have one name, or a keyword is one of another library.
    """
    if not NAME.fullmatch(name):
        raise AgentInvalid(name, "its name is not 1 to 64 letters, digits, _ and -")
    for what, limit in (("turns_max", turns_max), ("history_max", history_max)):
        if type(limit) is not int or limit < 1:
            raise AgentInvalid(name, f"it has {what}={limit!r:.80}, expected an int of at least 1")
    if not callable(model):
        raise AgentInvalid(name, f"its model is {model!r:.80}. Make it by ai.chat(...)")
    if problem := keyword_problem(parameters, agent):
        raise AgentInvalid(name, problem)
    if response is not None:
        try:
            response_format(response)
        except ModelCallInvalid as error:
            raise AgentInvalid(name, error.problem) from error
    given: Sequence[object] = tools
    if wrong := [each for each in given if not isinstance(each, Tool)]:
        raise AgentInvalid(name, f"{wrong[0]!r:.80} is not a tool. Put @ai.tool above the function")
    by_name = {each.name: each for each in tools}
    others = {HAND_OVER + each.name: each for each in handovers}
    if len(by_name) < len(tools) or len(others) < len(handovers) or by_name.keys() & others.keys():
        raise AgentInvalid(name, "two of its tools have one name")
    made = Agent(name, model, by_name, others, instructions, turns_max, history_max, response, text, select, parameters)
    made.team()  # refuses two agents with one name
    return made


def _hand_over(other: Agent) -> dict[str, Any]:
    about = f"Hands the conversation over to {other.name}."
    return {
        "type": "function",
        "function": {"name": HAND_OVER + other.name, "description": about, "parameters": NOTHING},
    }
