package toll_test

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// wordCeilings has the ceilings of TestWords.
const wordCeilings = "testdata/words/ceilings.txt"

// Goals of TestWords: odd places per 10,000 words.
const (
	goalOfKind = 12
	goalOfRoom = 25   // of comments in tests, and of each directory
	smallRoom  = 2000 // words: a smaller directory counts as one of this size
)

var oddBelow = flag.String("odd", "", "directory whose odd places TestWords logs; . for all")

// Kinds of text.
const (
	textsForUsers = "texts for users"
	documents     = "documents"
	comments      = "comments"
	decisions     = "decisions"
	testComments  = "test comments"
)

// A marker is a construction that a reader has to decode: alternatives of a row of words. A word is a choice of spellings.
type marker struct {
	name string
	rows []row
	// except reports that a match is not a marker, by the text before and after it.
	except func(before, after string) bool
}

type row [][]string

// rows reads alternatives, one a line: words with / between spellings.
func rows(text string) (out []row) {
	for line := range strings.Lines(text) {
		var r row
		for word := range strings.FieldsSeq(line) {
			choice := strings.Split(word, "/")
			r = append(r, choice)
		}
		out = append(out, r)
	}
	return out
}

const be = "is/are/was/were "

// markers are constructions, and not a list of forbidden words.
var markers = []marker{
	{"is no, is none", rows("is/are/was/were/be no/none"), func(before, after string) bool {
		return strings.HasSuffix(before, "there ") || hasPrefix(after, " longer", " more than", " less than", " fewer")
	}},
	{"goes on", rows("go/goes/went/going on"), func(_, after string) bool { return followedBy(after, "to", "the", "a", "an", "sale") }},
	{"indefinite person", rows("somebody/nobody/anybody/everybody"), nil},
	{"of its own", rows("of its/their/his/her/my/our/your own"), nil},
	{"is told, is asked for", rows("is/are/was/were/be/been told\nis/are/was/were/be/been asked/taken/looked for\n" +
		"is/are/was/were/be/been let in\nis/are/was/were/be/been given back\nis/are/was/were/be/been looked at"), nil},
	{"stands in, lies in", rows("stand/stands/stood/lie/lies/lay/rests in/on/at/beside/below/above/behind/there/here/for"), nil},
	{"that of, those of", rows("that/those of"), func(_, after string) bool {
		return !strings.HasPrefix(after, " ") || hasPrefix(after, " the year", " the day", " the month")
	}},
	{"one that, those who", rows("one/ones/those that/who/which"), nil},
	{"anew, in all, by itself", rows("anew/thereby/therein/whereby\nin whole/all\nof old\nby itself\nfor ever"), nil},
	{"make for create", madeRows(), nil},
	{"what as a noun", rows("what it/is/was/were/they/has/had/comes/came/goes/does/did/can/may/must/would/one/others/became/becomes/remains/follows"),
		func(_, after string) bool { return isQuestion(after, 120) }},
	{"says what, is how much", rows("is/are/was/were/say/says/said/tell/tells/told/know/knows what/who/whose\n" +
		"is/are/was/were/say/says/said/tell/tells/told/know/knows how many/much/long/often\n" +
		"is/are/was/were/say/says/said/tell/tells/told/know/knows which of"), nil},
	{"another one, others", rows("another one\nothers\nthe first/last/other/next/same/newest/oldest one"), nil},
	{"asks for", rows("ask/asks/asked for/it/of/again/once/about\nis/are/was/were/be asked"), nil},
	{"is good, is over", rows(be + "good/over/left/gone/due\n" + be + "under way\n" + be + "of no\n" + be + "to be"), nil},
	{"says that", rows("say/says that/so/it/nothing/no"), nil},
	{"for none", rows("for/of/has/have/with/without/know/knows/take/takes/need/needs none\nnone of/is/was/that"), nil},
	{"and those with", rows("and/or/but/as/than/from/for/with/by/to/in/at/is/are those/that with/in/at/by/for/from/on"), nil},
	{"that is not", rows("that is/are/was/were not/no/none/never"), nil},
	{"takes no", rows("take/takes/make/makes/know/knows/get/gets/give/gives/keep/keeps/find/finds/cost/costs/name/names/read/reads/write/writes/" +
		"hold/holds/see/sees/ask/asks no"), nil},
	{"of another", rows("of one/another/others/both/each/such/it/this/these"), func(_, after string) bool {
		return after != "" && !strings.ContainsAny(after[:1], ".,;:\n") &&
			!followedBy(after, "is", "are", "was", "were", "that", "which", "in", "at", "by", "for", "to", "and", "or")
	}},
}

// madeRows returns "make a plan" for each record that is created.
func madeRows() (out []row) {
	verbs := "make/makes/made/making a/an/the/one/another/your "
	for _, of := range []string{"", "new "} {
		out = append(out, rows(verbs+of+"plan/token/key/account/delegation/order/backup/agent/webhook/invitation/permission/package\n"+
			verbs+of+"access token\n"+verbs+of+"api key")...)
	}
	return out
}

// clause finds sentences that begin with Who or What and are not a question.
var clause = regexp.MustCompile(`(?m)(?:^|[.:;!?] |\| )(?:Who|What|Whatever|Whoever|Whose|Of)\b`)

// isQuestion reports whether a text reaches a question mark within its sentence and n characters.
func isQuestion(text string, n int) bool {
	end := strings.IndexAny(text, "?.\n")
	return end >= 0 && end <= n && text[end] == '?'
}

func hasPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

// followedBy reports whether a text continues with a blank and one of these words.
func followedBy(text string, words ...string) bool {
	if !strings.HasPrefix(text, " ") {
		return false
	}
	end := 1
	for end < len(text) && inWord(text[end]) {
		end++
	}
	return slices.Contains(words, text[1:end])
}

func inWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

// wordsIn returns where the words of a text begin and end.
func wordsIn(text string) (words [][2]int) {
	for i := 0; i < len(text); i++ {
		if start := i; inWord(text[i]) {
			for i < len(text) && inWord(text[i]) {
				i++
			}
			words = append(words, [2]int{start, i})
		}
	}
	return words
}

// step is a place in a row of words.
type step struct {
	marker, row int
}

// firstWords are the rows of markers by their first word.
var firstWords = func() map[string][]step {
	out := map[string][]step{}
	for i, m := range markers {
		for j, r := range m.rows {
			for _, w := range r[0] {
				out[w] = append(out[w], step{i, j})
			}
		}
	}
	return out
}()

// odd calls each for each marker in a text, with its place.
func odd(text string, each func(name string, from, to int)) {
	for _, at := range clause.FindAllStringIndex(text, -1) {
		if !isQuestion(text[at[1]:], 160) {
			each("who or what clause", at[0], at[1])
		}
	}
	lower := strings.ToLower(text)
	words := wordsIn(lower)
	last := make([]int, len(markers)) // end of the last match of a marker: matches do not overlap
	for i, at := range words {
	rows:
		for _, s := range firstWords[lower[at[0]:at[1]]] {
			m := &markers[s.marker]
			r, end := m.rows[s.row], at[1]
			for j := 1; j < len(r); j++ {
				if i+j >= len(words) || words[i+j][0] != end+1 || lower[end] != ' ' || !slices.Contains(r[j], lower[words[i+j][0]:words[i+j][1]]) {
					continue rows
				}
				end = words[i+j][1]
			}
			if at[0] >= last[s.marker] && (m.except == nil || !m.except(lower[:at[0]], lower[end:])) {
				last[s.marker] = end
				each(m.name, at[0], end)
			}
		}
	}
}

var (
	notOurs   = regexp.MustCompile(`(^|/)(testdata|vendor|node_modules|licenses|fixtures|dist|generate)/`)
	generated = regexp.MustCompile(`_gen\.go$|\.gen\.|generated\.ts$|_models\.py$|_resources_async\.py$|-REFERENCE\.md$`)
	ofTests   = regexp.MustCompile(`_test\.go$|\.test\.[mc]?[jt]s$|/tests?/|test_[^/]*\.py$`)
)

// kindOf returns the kind of a file: one of the kinds of text, "code" for one with comments and texts, or "".
func kindOf(name string) string {
	ext := path.Ext(name)
	code := slices.Contains([]string{".go", ".ts", ".mjs", ".js", ".py"}, ext)
	switch {
	case notOurs.MatchString(name) || generated.MatchString(name) || path.Base(name) == "LICENSE" || path.Base(name) == "NOTICE":
		return ""
	case ofTests.MatchString(name):
		if code {
			return testComments
		}
		return ""
	case strings.HasPrefix(name, "docs/decisions/"):
		return decisions
	case ext == ".md":
		return documents
	case ext == ".html" || ext == ".tmpl":
		return textsForUsers
	case code || ext == ".sql" || ext == ".sh":
		return "code"
	}
	return ""
}

// Comments and texts of languages.
var (
	goSyntax     = regexp.MustCompile("(?s)(?P<comment>//[^\n]*|/\\*.*?\\*/)|(?P<text>\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`)|'(?:[^'\\\\\n]|\\\\.)+'")
	jsSyntax     = regexp.MustCompile("(?s)(?P<comment>//[^\n]*|/\\*.*?\\*/)|(?P<text>\"(?:[^\"\\\\\n]|\\\\.)*\"|`[^`]*`)|'(?:[^'\\\\\n]|\\\\.)*'")
	pythonSyntax = regexp.MustCompile(`(?s)(?P<text>""".*?"""|"(?:[^"\\\n]|\\.)*")|(?P<comment>#[^\n]*)|'(?:[^'\\\n]|\\.)*'`)
	sqlSyntax    = regexp.MustCompile(`(?s)(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<text>\x00)`)

	commentSign = regexp.MustCompile(`^(//|--|#|/\*+|\s*\*)\s?`)
	sqlWord     = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|FROM|WHERE|JOIN|RETURNING)\b`)
	symbol      = regexp.MustCompile(`^[\w./{}%:?&=-]*$`)
	codeSpan    = regexp.MustCompile("`[^`]*`")
	htmlCode    = regexp.MustCompile(`(?s)<(?:script|style|pre|code)\b.*?</(?:script|style|pre|code)>`)
	action      = regexp.MustCompile(`(?s){{.*?}}`)
	tag         = regexp.MustCompile(`<[^>]*>`)
)

// passage is a run of prose.
type passage struct {
	kind string
	line int
	text string
}

// passages returns the prose of a file.
func passages(name, text string) (out []passage) {
	switch kind := kindOf(name); kind {
	case documents, decisions:
		return []passage{{kind, 1, proseOfMarkdown(text)}}
	case textsForUsers:
		lines := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
		text = htmlCode.ReplaceAllStringFunc(text, lines)
		text = action.ReplaceAllStringFunc(text, func(s string) string { return lines(s) + "X" })
		return []passage{{kind, 1, tag.ReplaceAllStringFunc(text, lines)}}
	case "code":
		return passagesOfCode(name, text, comments)
	case testComments:
		return passagesOfCode(name, text, testComments)
	}
	return nil
}

// proseOfMarkdown replaces blocks of code by empty lines.
func proseOfMarkdown(text string) string {
	lines, fenced := strings.Split(text, "\n"), false
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if fence {
			fenced = !fenced
		}
		if fence || fenced || strings.HasPrefix(line, "    ") {
			line = ""
		}
		lines[i] = codeSpan.ReplaceAllString(line, "`x`")
	}
	return strings.Join(lines, "\n")
}

// passagesOfCode returns comments, where lines without code between are one passage, and unless the file is a test, texts with a blank.
func passagesOfCode(name, text, kind string) (out []passage) {
	syntax := jsSyntax
	switch path.Ext(name) {
	case ".go":
		syntax = goSyntax
	case ".py", ".sh":
		syntax = pythonSyntax
	case ".sql":
		syntax = sqlSyntax
	}
	comment, quoted := 2*syntax.SubexpIndex("comment"), 2*syntax.SubexpIndex("text")
	line, seen, last := 1, 0, -9
	for _, m := range syntax.FindAllStringSubmatchIndex(text, -1) {
		line += strings.Count(text[seen:m[0]], "\n")
		seen = m[0]
		found := text[m[0]:m[1]]
		switch {
		case m[comment] >= 0:
			body := commentSign.ReplaceAllString(found, "")
			if line == last+1 {
				run := &out[len(out)-1]
				for i := len(out) - 1; run.kind != kind; i-- {
					run = &out[i]
				}
				run.text += "\n" + body
			} else {
				out = append(out, passage{kind, line, body})
			}
			last = line + strings.Count(found, "\n")
		case m[quoted] < 0 || kind == testComments:
		default:
			body := strings.Trim(found, "\"`")
			if len(found) < 14 || !strings.Contains(body, " ") || sqlWord.MatchString(body) || symbol.MatchString(body) {
				continue
			}
			of := textsForUsers
			if strings.HasPrefix(found, `"""`) {
				of = kind
			}
			out = append(out, passage{of, line, body})
		}
	}
	return out
}

// prose returns the files below dir that may have prose.
func prose(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "__") || notOurs.MatchString(name+"/") || slices.Contains(outputs, name)):
			return fs.SkipDir
		case d.Type().IsRegular() && kindOf(name) != "":
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// outputs are directories that builds write.
var outputs = []string{"screens", "build", "data", "toll-data", "try", "bench/results"}

// oddCount is the number of odd places and of words in texts.
type oddCount struct{ odd, words int }

// countOdd counts odd places of the files below dir by kind of text ("kind documents") and by directory ("dir internal/api").
func countOdd(t *testing.T, dir string, each func(file string, line int, marker, text string)) map[string]oddCount {
	t.Helper()
	counts := map[string]oddCount{}
	for _, name := range prose(t, dir) {
		text, err := os.ReadFile(path.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range passages(name, string(text)) {
			n := oddCount{words: len(strings.Fields(p.text))}
			odd(p.text, func(marker string, from, to int) {
				n.odd++
				start, end := strings.LastIndexByte(p.text[:from], '\n')+1, len(p.text)
				if i := strings.IndexByte(p.text[to:], '\n'); i >= 0 {
					end = to + i
				}
				each(name, p.line+strings.Count(p.text[:from], "\n"), marker, strings.TrimSpace(p.text[start:end]))
			})
			for _, of := range []string{"kind " + p.kind, "dir " + path.Dir(name)} {
				counts[of] = oddCount{counts[of].odd + n.odd, counts[of].words + n.words}
			}
		}
	}
	return counts
}

// goal returns how many odd places n words of a kind of text, or of a directory, may have.
func goal(name string, n int) int {
	if kind, ok := strings.CutPrefix(name, "kind "); ok && kind != testComments {
		return goalOfKind * n / 10_000
	}
	return goalOfRoom * max(n, smallRoom) / 10_000
}

// TestWords counts constructions that a reader has to decode in texts for users, documents, comments, decision records, and comments of
// tests. A kind of text and a directory may have more than their goals only up to their ceilings in testdata/words/ceilings.txt.
// -update lowers ceilings; -v -odd DIR prints each place below a directory.
func TestWords(t *testing.T) {
	counts := countOdd(t, ".", func(file string, line int, marker, text string) {
		if *oddBelow == "." || *oddBelow != "" && strings.HasPrefix(file, *oddBelow) {
			t.Logf("%s:%d: %s: %s", file, line, marker, text)
		}
	})
	file, err := os.Open(wordCeilings)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	most := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, figure, ok := cutLast(lines.Text()); ok {
			if most[name], err = strconv.Atoi(figure); err != nil {
				t.Fatalf("%s: %q: %v", wordCeilings, lines.Text(), err)
			}
		}
	}
	var b strings.Builder
	b.WriteString("# Ceilings of TestWords above its goals. They only fall: go test . -run TestWords -update\n")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n, goal := counts[name], goal(name, counts[name].words)
		if ceiling := max(most[name], goal); n.odd > ceiling {
			t.Errorf("%s: %d odd places, and the ceiling is %d: go test . -run TestWords -v -odd DIR prints them", name, n.odd, ceiling)
		}
		if n := min(n.odd, most[name]); n > goal {
			fmt.Fprintf(&b, "%s %d\n", name, n)
		}
	}
	if *updateDocs {
		if err := os.WriteFile(wordCeilings, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWords_Markers(t *testing.T) {
	for text, want := range map[string]string{
		"Who asks for a trial gets no order.":              "who or what clause, asks for, takes no",
		"Who are you?":                                     "",
		"has a name that is none of a header":              "that is not, is no, is none, for none",
		"There is no limit. It is no longer open.":         "",
		"The order goes on by itself.":                     "goes on, anew, in all, by itself",
		"goes on to the next page":                         "",
		"Nobody let the device in.":                        "indefinite person",
		"Empty: that of this workspace":                    "that of, those of",
		"that of the year":                                 "",
		"Make an API key":                                  "make for create",
		"Make the new access token":                        "make for create",
		"That is what it costs.":                           "says what, is how much, what as a noun",
		"Do you know what it costs?":                       "says what, is how much",
		"one of its own, or one of another.":               "of its own, of another",
		"one of another kind":                              "",
		"The service returns an error and keeps the hold.": "",
	} {
		var got []string
		odd(text, func(name string, _, _ int) { got = append(got, name) })
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	const code = "package p\n\n// f is told what it costs.\n// It goes on.\nfunc f() { panic(\"nobody is at this address\") }\n"
	want := []passage{{comments, 3, "f is told what it costs.\nIt goes on."}, {textsForUsers, 5, "nobody is at this address"}}
	if got := passages("internal/p/p.go", code); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := passages("internal/p/p_test.go", code); len(got) != 1 || got[0].kind != testComments {
		t.Errorf("%v", got)
	}
	page := passages("docs/P.md", "# Title\n\n```sh\nnobody\n```\nThe `nobody` user.")
	if len(page) != 1 || page[0].text != "# Title\n\n\n\n\nThe `x` user." {
		t.Errorf("%v", page)
	}
}

// TestFrozenMessages checks that sentences that deployed clients compare stay word for word.
func TestFrozenMessages(t *testing.T) {
	var frozen []struct {
		Text, Why string
		In        []string
	}
	if err := json.Unmarshal(must.Get(os.ReadFile("testdata/wire/messages.json"))(t), &frozen); err != nil || len(frozen) == 0 {
		t.Fatalf("messages.json: %d sentences, %v", len(frozen), err)
	}
	for _, f := range frozen {
		for _, name := range f.In {
			if text := string(must.Get(os.ReadFile(name))(t)); !strings.Contains(text, f.Text) {
				t.Errorf("%s does not contain %q: %s", name, f.Text, f.Why)
			}
		}
	}
}
