package page

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
)

// Names in the query string of a list: the columns that it shows, and that the choice is to be remembered.
const (
	columnsName = "cols"
	keepName    = "keep"
)

// columnsCookie says which columns of lists a person hides. It has the form "person|list:column.column|…", the last choice last.
const columnsCookie = "columns"

// mostColumns bounds that cookie in bytes: the choices made first are forgotten first.
const mostColumns = 1024

// columnChoice is the form that chooses the columns of a list. It works without scripts.
type columnChoice struct {
	Action  string
	Hidden  []Option // the rest of the query string
	Columns []Option
	Stays   string // the column that is always shown
}

// name is a column in the query string.
func (c Column) name() string { return strings.ReplaceAll(strings.ToLower(c.Text), " ", "-") }

// list is the list that a page is of: its table, or the first part that has pages. nil is none.
func (s *Record) list() *Table {
	if s.Table != nil {
		return s.Table
	}
	for _, p := range s.Parts {
		if p.Table.Pager != nil {
			return p.Table
		}
	}
	return nil
}

// columns hides the columns that somebody left out of the list of a page: those that the query string does not name, or, where it
// names none of the list, those that the person chose last. The column that names a row always stays. Names of other columns are
// ignored. It answers a choice that is to be remembered with a redirect to the address without that word. Any page
// may link there; all that it changes is which columns are shown.
func columns(c *Context, s *Record) View {
	t := s.list()
	if t == nil || len(t.Head) < 2 {
		return nil
	}
	q := c.R.URL.Query()
	var asked []string
	for _, names := range q[columnsName] {
		asked = append(asked, strings.Split(names, ",")...)
	}
	stays := t.Head[max(0, slices.IndexFunc(t.Head, func(column Column) bool { return column.Stays }))].name()
	known := slices.ContainsFunc(t.Head, func(column Column) bool { return slices.Contains(asked, column.name()) })
	hiddenBefore := hiddenColumns(c)[c.Area.Path]
	var shown, hidden []string
	choice := &columnChoice{Action: c.R.URL.Path, Stays: stays}
	for _, column := range t.Head {
		name := column.name()
		on := name == stays || known && slices.Contains(asked, name) || !known && !slices.Contains(hiddenBefore, name)
		if on {
			shown = append(shown, name)
		} else {
			hidden = append(hidden, name)
		}
		choice.Columns = append(choice.Columns, Option{Value: name, Text: column.Text, On: on})
	}
	if known && q.Has(keepName) && c.R.Method == http.MethodGet {
		rememberColumns(c, hidden)
		q.Del(keepName)
		q.Set(columnsName, strings.Join(shown, ","))
		return Redirect{http.StatusSeeOther, c.R.URL.Path + "?" + q.Encode()}
	}
	if known && len(s.Filter) > 0 {
		s.Filter = append(slices.Clone(s.Filter), Field{Name: columnsName, Type: "hidden", Value: strings.Join(shown, ",")})
	}
	for name, values := range q {
		for _, value := range values {
			if name != columnsName && name != keepName && name != "form" {
				choice.Hidden = append(choice.Hidden, Option{Value: name, Text: value})
			}
		}
	}
	slices.SortStableFunc(choice.Hidden, func(a, b Option) int { return strings.Compare(a.Value, b.Value) })
	if len(t.Rows) > 0 {
		t.Choice = choice
	}
	t.hide(hidden)
	return nil
}

// hide takes columns out of a table.
func (t *Table) hide(names []string) {
	head := t.Head
	t.Head = nil
	rows := make([][]Cell, len(t.Rows))
	for i, c := range head {
		if slices.Contains(names, c.name()) {
			continue
		}
		t.Head = append(t.Head, c)
		for j, row := range t.Rows {
			rows[j] = append(rows[j], row[i])
		}
	}
	t.Rows = rows
}

// columnsOf tells the choices of persons apart who use one browser, without telling who they are.
func columnsOf(c *Context) string {
	sum := sha256.Sum256([]byte(c.Person.UserID.String() + " " + c.Person.KeyID.String()))
	return hex.EncodeToString(sum[:8])
}

// columnChoices are the choices of the person in the cookie: the path of a list, a colon and the columns that it hides.
func columnChoices(c *Context) []string {
	cookie, err := c.R.Cookie(columnsCookie)
	if err != nil || len(cookie.Value) > mostColumns {
		return nil
	}
	all := strings.Split(cookie.Value, "|")
	if all[0] != columnsOf(c) {
		return nil
	}
	return all[1:]
}

// hiddenColumns are the columns that the person hides, by the path of a list.
func hiddenColumns(c *Context) map[string][]string {
	out := map[string][]string{}
	for _, choice := range columnChoices(c) {
		list, hidden, _ := strings.Cut(choice, ":")
		out[list] = strings.Split(hidden, ".")
	}
	return out
}

// rememberColumns puts into the cookie which columns of this list the person hides.
func rememberColumns(c *Context, hidden []string) {
	list := c.Area.Path + ":"
	all := slices.DeleteFunc(columnChoices(c), func(choice string) bool { return strings.HasPrefix(choice, list) })
	if len(hidden) > 0 {
		all = append(all, list+strings.Join(hidden, "."))
	}
	for {
		text := strings.Join(append([]string{columnsOf(c)}, all...), "|")
		if len(text) <= mostColumns || len(all) == 0 {
			c.SetChoice(columnsCookie, text, "/w/", len(all) > 0)
			return
		}
		all = all[1:]
	}
}
