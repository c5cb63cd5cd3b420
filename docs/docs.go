// Package docs has the guides of this directory as the service shows them: rendered, searchable, and as Markdown.
package docs

import (
	"bytes"
	"embed"
	"html/template"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

//go:embed *.md guides/*.md
var files embed.FS

// Guide is one document.
type Guide struct {
	Slug     string // the address of its page below /docs: "paying", "guide-wallet"; "" is /docs itself
	Title    string
	Group    string
	Markdown []byte
	HTML     template.HTML // without the title
	Sections []Section
}

// Path returns the address of the page.
func (g *Guide) Path() string { return strings.TrimSuffix("/docs/"+g.Slug, "/") }

// Summary returns the beginning of the text as one line.
func (g *Guide) Summary() string {
	for _, s := range g.Sections {
		if s.Text != "" {
			return excerpt(s.Text, "", nil)
		}
	}
	return g.Title
}

// Section is a part of a guide under one heading.
type Section struct {
	Anchor, Heading string
	Text            string // without markup
}

// Groups of guides, in their order, with the guides that each has first.
var groups = []struct {
	Name  string
	Slugs []string
}{
	{"Start", []string{"prompt", "sell", "buy"}},
	{"Buy", []string{"paying", "guide-x402-fetch", "guide-wallet", "guide-mcp-client", "guide-chat", "existing-clients"}},
	{"Sell without code", []string{"gate", "guide-sell-models", "guide-sell-ollama", "guide-sell-search", "guide-sell-mcp", "guide-gate-proxy"}},
	{"Sell", []string{"go", "mcp", "a2a", "x402", "cards", "crypto", "chat", "python", "python-reference", "typescript", "typescript-reference"}},
	{"Account", []string{"keys", "rights", "people", "oauth", "webhooks", "lists", "glossary"}},
	{"Run the service", []string{"operating"}},
	{"Work on it", []string{"architecture", "rooms", "testing"}},
}

// moreGroup has the guides that no group names.
const moreGroup = "More"

// ExampleService is the address of the service in the guide that becomes a prompt.
const ExampleService = "http://127.0.0.1:8402"

// prompt is the guide in which the address of a service takes the place of [ExampleService].
const prompt = "PROMPT.md"

// Guides returns all guides in the order in which a reader wants them. It renders them: keep the result.
// It panics for a document that cannot be read, which is a fault of the program.
func Guides(service string) []Guide {
	names, err := fileNames()
	if err != nil {
		panic(err)
	}
	var all []Guide
	for _, name := range names {
		source, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		if name == prompt && service != "" {
			source = bytes.ReplaceAll(source, []byte(ExampleService), []byte(service))
		}
		all = append(all, render(name, source))
	}
	rank := func(g Guide) int {
		n := 0
		for _, group := range groups {
			if i := slices.Index(group.Slugs, g.Slug); i >= 0 {
				return n + i
			}
			n += len(group.Slugs)
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b Guide) int { return rank(a) - rank(b) })
	return all
}

func fileNames() ([]string, error) {
	var names []string
	for _, dir := range []string{".", "guides"} {
		entries, err := files.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() && path.Ext(e.Name()) == ".md" {
				names = append(names, path.Join(dir, e.Name()))
			}
		}
	}
	return names, nil
}

// slugOf names the page of a file: "PAYING.md" is paying, "guides/wallet.md" is guide-wallet.
func slugOf(name string) string {
	slug := strings.ToLower(strings.TrimSuffix(path.Base(name), ".md"))
	if path.Dir(name) == "guides" {
		return "guide-" + slug
	}
	return slug
}

func groupOf(slug string) string {
	for _, g := range groups {
		if slices.Contains(g.Slugs, slug) {
			return g.Name
		}
	}
	return moreGroup
}

var markdown = goldmark.New(
	goldmark.WithExtensions(
		// A style attribute would violate the content policy of the pages.
		extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Strikethrough, extension.Linkify,
	),
	goldmark.WithParserOptions(parser.WithAutoHeadingID()),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(code{}, 1))),
)

// code renders blocks of code with a button that copies them.
type code struct{}

// RegisterFuncs implements [renderer.NodeRenderer].
func (code) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	show := func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.WriteString(`<div class="block"><pre class="code" tabindex="0">`) // goldmark reports errors of its writer
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				_, _ = w.Write(util.EscapeHTML(line.Value(source)))
			}
			_, _ = w.WriteString(`</pre><button type="button" class="copy" data-copy="">Copy</button></div>` + "\n")
		}
		return ast.WalkSkipChildren, nil
	}
	r.Register(ast.KindFencedCodeBlock, show)
	r.Register(ast.KindCodeBlock, show)
}

// words makes anchors of headings: a heading of one word, such as the name of a record, is its own anchor.
type words struct{ parser.IDs }

var oneWord = regexp.MustCompile(`^[A-Za-z0-9_]+$`)

// Generate implements [parser.IDs].
func (w words) Generate(value []byte, kind ast.NodeKind) []byte {
	if oneWord.Match(value) {
		return value
	}
	return w.IDs.Generate(value, kind)
}

// Reference returns the guide of a document that the service makes. With records, a heading of one word is its own anchor.
func Reference(slug, group string, source []byte, records bool) Guide {
	ids := parser.NewContext().IDs()
	if records {
		ids = words{ids}
	}
	return parse(slug, group, source, ids)
}

func render(name string, source []byte) Guide {
	return parse(slugOf(name), groupOf(slugOf(name)), resolve(path.Dir(name), source), parser.NewContext().IDs())
}

func parse(slug, group string, source []byte, ids parser.IDs) Guide {
	g := Guide{Slug: slug, Group: group, Markdown: source}
	doc := markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(ids))))
	var section *Section
	for n := doc.FirstChild(); n != nil; {
		next := n.NextSibling()
		h, isHeading := n.(*ast.Heading)
		switch {
		case isHeading && h.Level == 1 && g.Title == "":
			g.Title = plainOf(h, source)
			doc.RemoveChild(doc, h) // the page has it
			g.Sections = append(g.Sections, Section{})
			section = &g.Sections[0]
		case isHeading:
			id, _ := h.AttributeString("id")
			anchor, _ := id.([]byte)
			g.Sections = append(g.Sections, Section{Anchor: string(anchor), Heading: plainOf(h, source)})
			section = &g.Sections[len(g.Sections)-1]
		case section != nil:
			section.Text += plainOf(n, source) + "\n"
		}
		n = next
	}
	labelCells(doc, source)
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, doc); err != nil {
		panic(err) // a buffer takes everything
	}
	g.HTML = template.HTML(b.String()) // of the program, and without its raw HTML
	return g
}

// labelCells gives the cells of tables the headings of their columns, which a narrow page shows before them.
func labelCells(doc ast.Node, source []byte) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if row, ok := n.(*east.TableRow); ok && entering {
			head := row.Parent().FirstChild().FirstChild()
			for cell := row.FirstChild(); cell != nil && head != nil; cell, head = cell.NextSibling(), head.NextSibling() {
				if label := plainOf(head, source); label != "" {
					cell.SetAttributeString("data-label", []byte(label))
				}
			}
		}
		return ast.WalkContinue, nil
	})
}

// A link or a picture of Markdown: mark, text, and address.
var linked = regexp.MustCompile(`(!?)\[([^\]]*)\]\(([^)\s]+)\)`)

// resolve makes links to other guides lead to their pages, with titles in place of names of files. It leaves the text of links to files that
// the service does not show, and removes pictures: they are of pages of the service. Blocks of code stay as they are.
func resolve(dir string, source []byte) []byte {
	var out, prose bytes.Buffer
	flush := func() {
		out.Write(linked.ReplaceAllFunc(prose.Bytes(), func(link []byte) []byte { return resolveLink(dir, link) }))
		prose.Reset()
	}
	fence := ""
	for line := range bytes.Lines(source) {
		marks := fenceOf(line)
		switch {
		case fence == "" && marks == "":
			prose.Write(line)
			continue
		case fence == "":
			flush()
			fence = marks
		case strings.HasPrefix(marks, fence) && len(bytes.TrimSpace(line)) == len(marks):
			fence = ""
		}
		out.Write(line)
	}
	flush()
	return out.Bytes()
}

// fenceOf returns the marks with which a line begins or ends a block of code; "" for any other line.
func fenceOf(line []byte) string {
	line = bytes.TrimLeft(line, " ")
	rest := bytes.TrimLeft(line, "`")
	if n := len(line) - len(rest); n >= 3 {
		return string(line[:n])
	}
	return ""
}

func resolveLink(dir string, link []byte) []byte {
	m := linked.FindSubmatch(link)
	label, to := m[2], string(m[3])
	switch {
	case len(m[1]) > 0:
		return nil
	case strings.Contains(to, "://") || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "/") || strings.HasPrefix(to, "mailto:"):
		return link
	}
	file, fragment, has := strings.Cut(to, "#")
	file = path.Join(dir, file)
	to = "/docs/" + slugOf(file)
	if file != changelog {
		other, err := files.ReadFile(file)
		if err != nil || path.Ext(file) != ".md" {
			return label
		}
		if bytes.HasSuffix(label, []byte(".md")) {
			label, _, _ = bytes.Cut(bytes.TrimPrefix(other, []byte("# ")), []byte("\n"))
		}
	}
	if has {
		to += "#" + fragment
	}
	return []byte("[" + string(label) + "](" + to + ")")
}

// changelog is the one file outside of this directory that has a page.
const changelog = "../CHANGELOG.md"

// plainOf is the text of a node, without markup.
func plainOf(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// Found is a section that has all words of a search.
type Found struct{ To, Title, Heading, Excerpt string }

// Bounds of a search: bytes and words of a query, and results.
const (
	MaxQuery   = 256
	MaxWords   = 16
	mostFound  = 30
	excerptLen = 160
)

// Index finds sections of guides by their words.
type Index struct{ entries []entry }

type entry struct {
	guide          *Guide
	section        *Section
	heading, lower string // with the title of the guide, and the text, both in lowercase
}

// NewIndex returns the index of guides, which must not change afterwards.
func NewIndex(guides []Guide) Index {
	var x Index
	for i := range guides {
		g := &guides[i]
		for j := range g.Sections {
			s := &g.Sections[j]
			x.entries = append(x.entries, entry{g, s, strings.ToLower(g.Title + " " + s.Heading), strings.ToLower(s.Text)})
		}
	}
	return x
}

// Search returns the sections that have each word of a query, those with a word in the heading first, at most 30. A query with more than
// [MaxQuery] bytes or [MaxWords] words finds nothing.
func (x Index) Search(query string) (found []Found) {
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 || len(words) > MaxWords || len(query) > MaxQuery {
		return nil
	}
	var inHeading, inText []*entry
	for i := range x.entries {
		e := &x.entries[i]
		has := func(w string) bool { return strings.Contains(e.heading, w) }
		switch {
		case slices.ContainsFunc(words, func(w string) bool { return !has(w) && !strings.Contains(e.lower, w) }):
		case slices.ContainsFunc(words, has):
			inHeading = append(inHeading, e)
		default:
			inText = append(inText, e)
		}
	}
	all := append(inHeading, inText...)
	for _, e := range all[:min(len(all), mostFound)] {
		f := Found{To: e.guide.Path(), Title: e.guide.Title, Heading: e.section.Heading, Excerpt: excerpt(e.section.Text, e.lower, words)}
		if e.section.Anchor != "" {
			f.To += "#" + e.section.Anchor
		}
		found = append(found, f)
	}
	return found
}

// excerpt is the text around the first word that it has, without the backquotes of code.
func excerpt(text, lower string, words []string) string {
	at := 0
	if len(text) == len(lower) { // else letters have other lengths in lower case
		for _, w := range words {
			if i := strings.Index(lower, w); i >= 0 {
				at = max(0, i-excerptLen/3)
				break
			}
		}
	}
	end := min(len(text), at+utf8.UTFMax*(excerptLen+4)) // enough for the excerpt and for a character that is cut at each end
	runes := []rune(strings.ToValidUTF8(text[at:end], ""))
	out := strings.ReplaceAll(strings.Join(strings.Fields(string(runes[:min(len(runes), excerptLen)])), " "), "`", "")
	if at > 0 {
		out = "…" + out
	}
	if len(runes) > excerptLen {
		out += "…"
	}
	return out
}
