// Package docs has the guides of this directory as the service shows them: rendered, searchable, and as Markdown.
package docs

import (
	"bytes"
	"embed"
	"html/template"
	"path"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

//go:embed *.md guides/*.md
var files embed.FS

// Guide is one document.
type Guide struct {
	Slug     string // names its page: "paying", "guide-wallet"
	Title    string
	Group    string
	Markdown []byte
	HTML     template.HTML
	Sections []Section
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
	{"Start", []string{"sell", "buy"}},
	{"Buy", []string{"paying", "guide-x402-fetch", "guide-wallet", "guide-mcp-client", "guide-chat", "existing-clients"}},
	{"Sell", []string{"go", "mcp", "a2a", "x402", "cards", "crypto", "chat", "python", "python-reference", "typescript", "typescript-reference"}},
	{"Account", []string{"keys", "rights", "people", "oauth", "webhooks", "lists", "glossary"}},
	{"Run the service", []string{"operating"}},
	{"Work on it", []string{"architecture", "rooms", "testing"}},
}

// moreGroup has the guides that no group names.
const moreGroup = "More"

// Guides returns all guides in the order in which a reader wants them. It renders them: keep the result.
// It panics for a document that cannot be read, which is a fault of the program.
func Guides() []Guide {
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

var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))

func render(name string, source []byte) Guide {
	g := Guide{Slug: slugOf(name), Group: groupOf(slugOf(name)), Markdown: source}
	doc := markdown.Parser().Parse(text.NewReader(source))
	link(doc, path.Dir(name), source)
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
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, doc); err != nil {
		panic(err) // a buffer takes everything
	}
	g.HTML = template.HTML(b.String()) // of the program, and without its raw HTML
	return g
}

// link makes links to other guides lead to their pages, with titles in place of names of files. It leaves the text of links to files that
// the service does not show, and removes pictures: they are of pages of the service.
func link(doc ast.Node, dir string, source []byte) {
	var links []*ast.Link
	var pictures []*ast.Image
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Link:
			if entering {
				links = append(links, n)
			}
		case *ast.Image:
			if entering {
				pictures = append(pictures, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, p := range pictures {
		around := p.Parent()
		around.RemoveChild(around, p)
		if !around.HasChildren() {
			around.Parent().RemoveChild(around.Parent(), around)
		}
	}
	for _, l := range links {
		to := string(l.Destination)
		if strings.Contains(to, "://") || strings.HasPrefix(to, "#") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		file, fragment, has := strings.Cut(to, "#")
		file = path.Join(dir, file)
		if other, err := files.ReadFile(file); err == nil && path.Ext(file) == ".md" {
			if strings.HasSuffix(plainOf(l, source), ".md") {
				title, _, _ := bytes.Cut(bytes.TrimPrefix(other, []byte("# ")), []byte("\n"))
				l.RemoveChildren(l)
				l.AppendChild(l, ast.NewString(title))
			}
			to = "/docs/" + slugOf(file)
			if has {
				to += "#" + fragment
			}
			l.Destination = []byte(to)
			continue
		}
		parent := l.Parent()
		for c := l.FirstChild(); c != nil; {
			next := c.NextSibling()
			parent.InsertBefore(parent, l, c)
			c = next
		}
		parent.RemoveChild(parent, l)
	}
}

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

// Search returns the sections that have each word of a query, those with a word in the heading
// first. A query beyond the bounds finds nothing.
func Search(guides []Guide, query string) []Found {
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 || len(words) > MaxWords || len(query) > MaxQuery {
		return nil
	}
	var inHeading, inText []Found
	for _, g := range guides {
		for _, s := range g.Sections {
			heading := strings.ToLower(g.Title + " " + s.Heading)
			body := strings.ToLower(s.Text)
			missing := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(heading, w) && !strings.Contains(body, w) })
			if missing {
				continue
			}
			f := Found{To: "/docs/" + g.Slug, Title: g.Title, Heading: s.Heading, Excerpt: excerpt(s.Text, body, words)}
			if s.Anchor != "" {
				f.To += "#" + s.Anchor
			}
			if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(heading, w) }) {
				inHeading = append(inHeading, f)
			} else {
				inText = append(inText, f)
			}
		}
	}
	found := append(inHeading, inText...)
	return found[:min(len(found), mostFound)]
}

// excerpt is the text around the first word that it has.
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
	runes := []rune(strings.ToValidUTF8(text[at:], ""))
	out := strings.Join(strings.Fields(string(runes[:min(len(runes), excerptLen)])), " ")
	if at > 0 {
		out = "…" + out
	}
	if len(runes) > excerptLen {
		out += "…"
	}
	return out
}
