package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
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
	wordsPerMinute    = 230 // of a reader of English
	topWordCount      = 3
)

// textStatistics is what the agent of toll dev works out.
type textStatistics struct {
	Characters     int         `json:"characters"`
	Words          int         `json:"words"`
	Sentences      int         `json:"sentences"`
	LongestWord    string      `json:"longestWord"`
	ReadingSeconds int         `json:"readingSeconds"`
	TopWords       []wordCount `json:"topWords"`
}

type wordCount struct {
	Word  string `json:"word"`
	Count int    `json:"count"`
}

// measure counts. Words are letters and digits, with apostrophes and hyphens inside them.
func measure(text string) textStatistics {
	s := textStatistics{Characters: utf8.RuneCountInString(text), TopWords: []wordCount{}}
	counts := map[string]int{}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) && !strings.ContainsRune("'’-", r)
	}) {
		if word = strings.Trim(word, "'’-"); word == "" {
			continue
		}
		s.Words++
		counts[strings.ToLower(word)]++
		if utf8.RuneCountInString(word) > utf8.RuneCountInString(s.LongestWord) {
			s.LongestWord = word
		}
	}
	for sentence := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(".!?…。！？", r) }) {
		if strings.ContainsFunc(sentence, unicode.IsLetter) {
			s.Sentences++
		}
	}
	s.ReadingSeconds = (s.Words*60 + wordsPerMinute - 1) / wordsPerMinute
	for word, n := range counts {
		s.TopWords = append(s.TopWords, wordCount{word, n})
	}
	slices.SortFunc(s.TopWords, func(a, b wordCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Word, b.Word))
	})
	s.TopWords = s.TopWords[:min(topWordCount, len(s.TopWords))]
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
