import os
import re

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from toll import AsyncToll
from toll.asgi import Middleware, paid

app = FastAPI()
app.add_middleware(
    Middleware, client=AsyncToll(), plan=os.environ["TOLL_PLAN"], agent=os.environ["TOLL_AGENT"],
    public_url=os.environ["PUBLIC_URL"],
)


class Document(BaseModel):
    text: str


@app.get("/health")
def health():
    return {"status": "ok"}


@app.post("/summaries")
@paid(credits=2)
def summarize(document: Document):
    if not document.text:
        raise HTTPException(status_code=400, detail="text is required")
    sentences = re.split(r"(?<=[.!?])\s+", document.text)
    return {"summary": sentences[0], "sentences": len(sentences)}


@app.get("/words/{word}")
@paid(credits=1)
def count_letters(word: str):
    return {"word": word, "letters": len(word)}
