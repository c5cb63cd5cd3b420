package cli

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
)

// Prices of the agent of toll dev.
const (
	devCharsPerCredit = 200
	devMaxCredits     = 5
	devMaxText        = 64 << 10
)

// textStatistics is what the agent of toll dev works out.
type textStatistics struct {
	Characters int `json:"characters"`
	Words      int `json:"words"`
	Sentences  int `json:"sentences"`
}

// measure counts. A word and a sentence have a letter or a digit.
func measure(text string) textStatistics {
	s := textStatistics{Characters: utf8.RuneCountInString(text)}
	counts := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for word := range strings.FieldsSeq(text) {
		if strings.ContainsFunc(word, counts) {
			s.Words++
		}
	}
	for sentence := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(".!?…。！？", r) }) {
		if strings.ContainsFunc(sentence, counts) {
			s.Sentences++
		}
	}
	return s
}

// statisticsAgent takes plain text, or JSON with a member text. It knows nothing of payment.
func statisticsAgent(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, devMaxText))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		http.Error(w, "the text is longer than 64 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "the text did not arrive", http.StatusBadRequest)
		return
	}
	text := string(raw)
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		var in struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(raw, &in); err != nil {
			http.Error(w, `send {"text": "…"}, or text/plain`, http.StatusBadRequest)
			return
		}
		text = in.Text
	}
	if strings.TrimSpace(text) == "" || !utf8.ValidString(text) {
		http.Error(w, "there is no text to measure", http.StatusBadRequest)
		return
	}
	b, err := json.MarshalIndent(measure(text), "", "  ")
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // an answer that cannot be delivered is nobody's concern any more
}

// statisticsPrice charges one credit for each started 200 characters.
func statisticsPrice(_ *http.Request, answer paid.Response) toll.Credits {
	var s textStatistics
	if json.Unmarshal(answer.Body, &s) != nil {
		return 1
	}
	return toll.Credits(min((s.Characters+devCharsPerCredit-1)/devCharsPerCredit, devMaxCredits))
}
