package cli

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// say writes a line for a person to stderr. The word in front may be empty.
func (con *console) say(word, format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...))
	if word == "" {
		fmt.Fprintln(con.err, text)
		return
	}
	if isTerminal(con.err) && con.mayColour() {
		style := lipgloss.NewStyle().Bold(true)
		if word == "error" {
			style = style.Foreground(lipgloss.Red)
		}
		word = style.Render(word)
	}
	fmt.Fprintf(con.err, "%s: %s\n", word, text)
}

func (con *console) asJSON() bool {
	output := cmp.Or(con.set.output, strings.ToLower(con.flags.output), strings.ToLower(con.getenv("TOLL_OUTPUT")))
	return output == formatJSON || output == formatNDJSON
}

// encoded is the JSON of a value, or the error. An answer of the service stays as it was received.
func encoded(v any, err error) (json.RawMessage, error) {
	if got, ok := v.(json.RawMessage); ok || err != nil {
		return got, err
	}
	return x402.Encode(v)
}

// show writes a value, or an answer as it was received, as one record.
func (con *console) show(v any) error {
	got, err := encoded(v, nil)
	if err != nil {
		return err
	}
	switch con.set.output {
	case formatQuiet:
		return nil
	case formatJSON:
		return con.writeJSON(got)
	case formatNDJSON:
		return con.writeCompact(got)
	}
	members, err := membersOf(got)
	if err != nil {
		return err
	}
	var names, values []string
	var rows [][]string
	for _, m := range members {
		value := list.TextOf(m.value)
		names, values = append(names, m.name), append(values, value)
		rows = append(rows, []string{m.name, withWhole(m.name, value, at(got, "currency"))})
	}
	if con.set.output == formatCSV {
		return writeCSV(con.out, [][]string{names, values})
	}
	if con.set.terminal {
		rows = laidOut(members)
	}
	return con.writeRows(nil, rows)
}

// withWhole adds the amount as whole units to a member in cents.
func withWhole(member, value, currency string) string {
	if whole := list.CentsToWhole(value); whole != "" && strings.HasSuffix(member, "Cents") {
		return strings.TrimSpace(value+" ("+whole+" "+currency) + ")"
	}
	return value
}

// laidOut are the members of a record for reading: what has no value is left out, and members of members stand below them.
func laidOut(members []jsonMember) (rows [][]string) {
	currency := ""
	for _, m := range members {
		if m.name == "currency" {
			currency = list.TextOf(m.value)
		}
	}
	for _, m := range members {
		inner, err := membersOf(m.value)
		switch {
		case err == nil:
			for _, row := range laidOut(inner) {
				rows = append(rows, []string{m.name + "." + row[0], row[1]})
			}
			continue
		case list.TextOf(m.value) == "" || list.TextOf(m.value) == "[]":
			continue
		}
		value := list.TextOf(m.value)
		var words []string
		if json.Unmarshal(m.value, &words) == nil {
			value = strings.Join(words, ", ")
		}
		rows = append(rows, []string{m.name, withWhole(m.name, value, currency)})
	}
	return rows
}

// showOne shows a record: on a terminal, the members that people see with their labels, otherwise as [console.made] does.
func showOne(con *console, got json.RawMessage, member string, of list.List) error {
	if !con.set.terminal || con.set.output != formatTable || of.Columns == nil {
		return con.made(got, member)
	}
	var rows [][]string
	for _, c := range of.Columns {
		value := wordsOf(con, got, c)
		switch {
		case value == "", value == "0.00" && c.Kind == list.KindCents:
			continue
		case c.Kind == list.KindFlag:
			value = map[string]string{"true": "yes", "false": "no"}[value]
		case c.Kind == list.KindMoney && (value == free || value == "0"):
			value = free
		case c.Kind == list.KindMoney, c.Kind == list.KindCents:
			value = strings.TrimSpace(value + " " + cmp.Or(at(got, "currency"), at(got, "metadata.plan.currency")))
		}
		rows = append(rows, []string{c.Title + ":", value})
	}
	return con.writeRows(nil, rows)
}

// made shows a created record. With --quiet, it prints only the member that identifies the record.
func (con *console) made(v any, member string) error {
	if con.set.output != formatQuiet || member == "" {
		return con.show(v)
	}
	got, err := encoded(v, nil)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(con.out, clean(at(got, member)))
	return err
}

// built shows a value that a command built without the service. In a pipe it is JSON, for the flags that take it, unless another format
// is set.
func (con *console) built(v any) error {
	if con.set.terminal || con.set.output == formatQuiet || cmp.Or(con.flags.output, con.getenv("TOLL_OUTPUT")) != "" {
		return con.show(v)
	}
	got, err := encoded(v, nil)
	if err != nil {
		return err
	}
	return con.writeCompact(got)
}

// showPage writes a list: whole as JSON, else its records.
func (con *console) showPage(v any, of list.List) error {
	got, err := encoded(v, nil)
	if err != nil {
		return err
	}
	records := got
	if of.Member != "" {
		records = rawOf(got, of.Member)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(records, &items); err != nil {
		return unreadable(err)
	}
	if con.set.output == formatJSON {
		return con.writeJSON(got)
	}
	titles := make([]string, len(of.Columns))
	for i, c := range of.Columns {
		titles[i] = strings.ToUpper(c.Title)
	}
	if con.set.output == formatCSV {
		for _, c := range of.ToWhole() {
			titles = append(titles, strings.ToUpper(c.WholeTitle()))
		}
	}
	return con.rows(items, titles, of)
}

// rows writes records as lines.
func (con *console) rows(items []json.RawMessage, titles []string, of list.List) error {
	var rows [][]string
	for _, item := range items {
		if con.set.output == formatNDJSON {
			if err := con.writeCompact(item); err != nil {
				return err
			}
			continue
		}
		row := make([]string, len(of.Columns))
		for i, c := range of.Columns {
			row[i] = con.cell(item, c)
			if of.Path == list.PlansOfAgent.Path || of.Path == list.AgentsOfPlan.Path {
				row[i] = wordsOf(con, item, c) // commands accept only whole ids of records that belong to another workspace
			}
		}
		if con.set.output == formatCSV {
			for _, c := range of.ToWhole() {
				row = append(row, wholeAt(item, c))
			}
		}
		rows = append(rows, row)
	}
	switch {
	case con.set.output == formatQuiet || con.set.output == formatNDJSON:
		return nil
	case con.set.output == formatCSV && titles != nil:
		return writeCSV(con.out, append([][]string{titles}, rows...))
	case con.set.output == formatCSV:
		return writeCSV(con.out, rows)
	}
	return con.writeRows(titles, rows)
}

// cell is the text of a column. On a terminal, it is the beginning of an id that commands accept.
func (con *console) cell(item json.RawMessage, c list.Column) string {
	value := wordsOf(con, item, c)
	if con.set.terminal && con.set.output == formatTable && c.Kind == list.KindID && c.Path != "txHash" {
		return short(value)
	}
	return value
}

// wordsOf is the value of a column. A table shows plans in words, money as whole units, and times with their unit.
func wordsOf(con *console, item json.RawMessage, c list.Column) string {
	value := at(item, c.Path)
	if con.set.output != formatTable {
		return value
	}
	if words := planWords[c.Path]; words != nil {
		var p toll.Plan
		if json.Unmarshal(item, &p) == nil {
			return words(&p)
		}
	}
	if c.Kind == list.KindMicros && value != "" {
		return value + "µs"
	}
	return cmp.Or(wholeAt(item, c), value)
}

// wholeAt converts a member of an object to whole units. It returns "" for other members.
func wholeAt(item json.RawMessage, c list.Column) string {
	var record list.Record
	if json.Unmarshal(item, &record) != nil {
		return ""
	}
	return c.Whole(record)
}

func unreadable(err error) error {
	return fmt.Errorf("the response of the service cannot be read: %w", err)
}

func (con *console) writeJSON(body []byte) error {
	var b bytes.Buffer
	return con.writeLine(&b, json.Indent(&b, body, "", "  "))
}

func (con *console) writeCompact(body []byte) error {
	var b bytes.Buffer
	return con.writeLine(&b, json.Compact(&b, body))
}

func (con *console) writeLine(b *bytes.Buffer, err error) error {
	if err != nil {
		return unreadable(err)
	}
	b.WriteByte('\n')
	_, err = con.out.Write(b.Bytes())
	return err
}

// writeRows writes rows aligned and titled on a terminal, and separated by tabs without a title in a pipe.
func (con *console) writeRows(titles []string, rows [][]string) error {
	var lines strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			row[i] = clean(cell)
		}
		lines.WriteString(strings.Join(row, "\t") + "\n")
	}
	if !con.set.terminal {
		_, err := io.WriteString(con.out, lines.String())
		return err
	}
	t := table.New().Border(lipgloss.HiddenBorder()).BorderTop(false).BorderBottom(false).BorderLeft(false).
		BorderRight(false).BorderHeader(false).Wrap(false).Rows(rows...)
	if titles != nil {
		t.Headers(titles...)
	}
	t.StyleFunc(func(row, column int) lipgloss.Style {
		isTitle := row == table.HeaderRow || titles == nil && column == 0
		return lipgloss.NewStyle().Bold(isTitle && con.set.colour)
	})
	_, err := fmt.Fprintln(con.out, t.Render())
	return err
}

func writeCSV(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = inert(cell)
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// number is a cell that a spreadsheet takes for a number, whatever its sign.
var number = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?\z`)

// inert returns a cell that no spreadsheet takes for a formula; see [plain.Cell]. Numbers stay numbers. Strangers write names and
// descriptions.
func inert(cell string) string {
	if number.MatchString(cell) {
		return cell
	}
	return plain.Cell(cell)
}

// amountIn converts base units to whole units of a currency. It returns base units unchanged if the decimals are unknown, as for a token without a name.
func amountIn(currency string, u toll.Units) string {
	if whole, known := list.Amount(currency, u); known {
		return whole
	}
	return u.String()
}

// clean replaces characters that would control a terminal or break a line, because other people write names and descriptions.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return ' '
		}
		return r
	}, s)
}

type jsonMember struct {
	name  string
	value json.RawMessage
}

// membersOf returns the members of an object in their order.
func membersOf(body []byte) ([]jsonMember, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, unreadable(fmt.Errorf("not a JSON object"))
	}
	var members []jsonMember
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, unreadable(err)
		}
		m := jsonMember{name: name.(string)} // the name of a member is a string
		if err := dec.Decode(&m.value); err != nil {
			return nil, unreadable(err)
		}
		members = append(members, m)
	}
	return members, nil
}

// at returns the text of a member of an object, dotted from it.
func at(item json.RawMessage, path string) string { return list.TextOf(rawOf(item, path)) }

// rawOf returns a member of an object, dotted from it, and null when it is not there.
func rawOf(item json.RawMessage, path string) json.RawMessage {
	var record list.Record
	if json.Unmarshal(item, &record) != nil || record.At(path) == nil {
		return json.RawMessage("null")
	}
	return record.At(path)
}
