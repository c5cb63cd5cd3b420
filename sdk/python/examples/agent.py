"""An agent that sells responses with FastAPI.

    TOLL_API_KEY=... TOLL_PLAN=... TOLL_AGENT=... AGENT_URL=http://127.0.0.1:8000 uvicorn agent:app
"""

import os

from fastapi import FastAPI
from pydantic import BaseModel
from toll import AsyncToll
from toll.asgi import Middleware, Work, current_payment, paid


class Question(BaseModel):
    """A request of a caller."""

    text: str


class Answer(BaseModel):
    """The response, with the payer."""

    text: str
    payer: str


def by_length(work: Work) -> int:
    """One credit for each hundred bytes of the response."""
    return work.size // 100 + 1


app = FastAPI()
app.add_middleware(
    Middleware,
    client=AsyncToll(),
    plan=os.environ["TOLL_PLAN"],
    agent=os.environ.get("TOLL_AGENT"),
    public_url=os.environ["AGENT_URL"],
)


@app.post("/ask")
@paid(credits=2)
async def ask(question: Question) -> Answer:
    """Responds for two credits."""
    return Answer(text=question.text.upper(), payer=current_payment().payer)


@app.post("/essay")
@paid(credits=by_length, max_credits=5)
async def essay(question: Question) -> Answer:
    """Responds at a price that depends on the length of the response."""
    return Answer(text=question.text * 10, payer=current_payment().payer)
