const express = require("express");

const app = express();
app.use(express.json());

app.get("/health", (req, res) => {
  res.json({ status: "ok" });
});

app.post("/summaries", (req, res) => {
  const { text } = req.body;
  if (!text) {
    return res.status(400).json({ error: "text is required" });
  }
  const sentences = text.split(/(?<=[.!?])\s+/);
  res.json({ summary: sentences[0], sentences: sentences.length });
});

app.get("/words/:word", (req, res) => {
  const { word } = req.params;
  res.json({ word, letters: word.length });
});

app.listen(process.env.PORT ?? 3000, "127.0.0.1");
