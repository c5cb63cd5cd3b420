import re

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

app = FastAPI()


class Document(BaseModel):
    text: str


@app.get("/health")
def health():
    return {"status": "ok"}


@app.post("/summaries")
def summarize(document: Document):
    if not document.text:
        raise HTTPException(status_code=400, detail="text is required")
    sentences = re.split(r"(?<=[.!?])\s+", document.text)
    return {"summary": sentences[0], "sentences": len(sentences)}


@app.get("/words/{word}")
def count_letters(word: str):
    return {"word": word, "letters": len(word)}
