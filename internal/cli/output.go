package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"

	"github.com/tollhq/toll"
)

// column is a column of a list: its title and the member that it shows, dotted from the item.
type column struct{ title, path string }

// say writes a line for a person to stderr. The word in front may be empty.
func (a *app) say(word, format string, args ...any) {
	text := clean(fmt.Sprintf(format, args...))
	if word == "" {
		fmt.Fprintln(a.err, text)
		return
	}
	if isTerminal(a.err) && a.mayColour() {
		style := lipgloss.NewStyle().Bold(true)
		if word == "error" {
			style = style.Foreground(lipgloss.Red)
		}
		word = style.Render(word)
	}
	fmt.Fprintf(a.err, "%s: %s\n", word, text)
}

func (a *app) asJSON() bool {
	output := first(a.set.output, strings.ToLower(a.flags.output), strings.ToLower(a.getenv("TOLL_OUTPUT")))
	return output == formatJSON || output == formatNDJSON
}

// record writes one record. body is an answer as received.
func (a *app) record(body []byte) error {
	switch a.set.output {
	case formatQuiet:
		return nil
	case formatJSON:
		return a.writeJSON(body)
	case formatNDJSON:
		return a.writeCompact(body)
	}
	members, err := membersOf(body)
	if err != nil {
		return err
	}
	if a.set.output == formatCSV {
		var names, values []string
		for _, m := range members {
			names, values = append(names, m.name), append(values, text(m.value))
		}
		return writeCSV(a.out, [][]string{names, values})
	}
	rows := make([][]string, 0, len(members))
	for _, m := range members {
		rows = append(rows, []string{m.name, text(m.value)})
	}
	return a.writeRows(nil, rows)
}

// list writes a page of records, the member of body with this name.
func (a *app) list(body []byte, member string, columns []column) error {
	switch a.set.output {
	case formatQuiet:
		return nil
	case formatJSON:
		return a.writeJSON(body)
	}
	var page map[string]json.RawMessage
	if err := json.Unmarshal(body, &page); err != nil {
		return unreadable(err)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(page[member], &items); err != nil {
		return unreadable(err)
	}
	return a.items(items, columns)
}

// array writes a list whose answer is a bare array.
func (a *app) array(body []byte, columns []column) error {
	switch a.set.output {
	case formatQuiet:
		return nil
	case formatJSON:
		return a.writeJSON(body)
	}
	var items []json.RawMessage
	if err := json.Unmarshal(body, &items); err != nil {
		return unreadable(err)
	}
	return a.items(items, columns)
}

func (a *app) items(items []json.RawMessage, columns []column) error {
	if a.set.output == formatNDJSON {
		for _, item := range items {
			if err := a.writeCompact(item); err != nil {
				return err
			}
		}
		return nil
	}
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	var rows [][]string
	for _, item := range items {
		row := make([]string, len(columns))
		for i, c := range columns {
			row[i] = a.cell(item, c.path)
		}
		rows = append(rows, row)
	}
	if a.set.output == formatCSV {
		return writeCSV(a.out, append([][]string{titles}, rows...))
	}
	return a.writeRows(titles, rows)
}

// cell is the text of a column. A table says some of them as people do: plans in words, and the cents of delegations in whole units.
func (a *app) cell(item json.RawMessage, path string) string {
	value := at(item, path)
	if a.set.output != formatTable {
		return value
	}
	if words := planWords[path]; words != nil {
		var p toll.Plan
		if json.Unmarshal(item, &p) == nil {
			return words(&p)
		}
	}
	switch path {
	case "spendingLimitCents", "amountSpentCents", "remainingBudgetCents":
		if cents, err := strconv.ParseInt(value, 10, 64); err == nil {
			return toll.FormatAmount(toll.UnitsOfCents(cents), 6)
		}
	}
	return value
}

func unreadable(err error) error {
	return fmt.Errorf("the service sent an answer that cannot be read: %w", err)
}

func (a *app) writeJSON(body []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, body, "", "  "); err != nil {
		return unreadable(err)
	}
	b.WriteByte('\n')
	_, err := a.out.Write(b.Bytes())
	return err
}

func (a *app) writeCompact(body []byte) error {
	var b bytes.Buffer
	if err := json.Compact(&b, body); err != nil {
		return unreadable(err)
	}
	b.WriteByte('\n')
	_, err := a.out.Write(b.Bytes())
	return err
}

// writeRows writes rows aligned and titled on a terminal, and separated by tabs without a title in a pipe.
func (a *app) writeRows(titles []string, rows [][]string) error {
	var b strings.Builder
	if !a.set.terminal {
		for _, row := range rows {
			for i, cell := range row {
				if i > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(clean(cell))
			}
			b.WriteByte('\n')
		}
		_, err := io.WriteString(a.out, b.String())
		return err
	}
	widths := map[int]int{}
	all := rows
	if titles != nil {
		all = append([][]string{titles}, rows...)
	}
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(clean(cell)))
		}
	}
	title := lipgloss.NewStyle().Bold(true)
	for n, row := range all {
		for i, cell := range row {
			cell = clean(cell)
			pad := ""
			if i < len(row)-1 {
				pad = strings.Repeat(" ", widths[i]-lipgloss.Width(cell)+2)
			}
			if a.set.colour && (titles != nil && n == 0 || titles == nil && i == 0) {
				cell = title.Render(cell)
			}
			b.WriteString(cell + pad)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(a.out, b.String())
	return err
}

func writeCSV(w io.Writer, rows [][]string) error {
	c := csv.NewWriter(w)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = inert(cell)
		}
		if err := c.Write(cells); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// number is a cell that a spreadsheet takes for a number, whatever its sign.
var number = regexp.MustCompile(`^[+-]?[0-9]+(\.[0-9]+)?\z`)

// inert returns a cell that no spreadsheet takes for a formula: one that begins like a formula gets
// an apostrophe in front, which spreadsheets read as "this is text". Numbers stay numbers. Names
// and descriptions are written by strangers.
func inert(cell string) string {
	if cell == "" || !strings.ContainsRune("=+-@\t\r", rune(cell[0])) || number.MatchString(cell) {
		return cell
	}
	return "'" + cell
}

// amountIn returns base units in whole units of a currency, and as they are where its decimals are not known, as of a token
// without a name.
func amountIn(currency string, u toll.Units) string {
	switch currency {
	case toll.CurrencyUSD, toll.CurrencyEUR, toll.CurrencyUSDC, toll.CurrencyEURC:
		return toll.FormatAmount(u, 6)
	case toll.CurrencyETH:
		return toll.FormatAmount(u, 18)
	}
	return u.String()
}

// clean takes away what would steer a terminal or break a line: names and descriptions are written by strangers.
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
		return nil, unreadable(fmt.Errorf("not an object"))
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
func at(item json.RawMessage, path string) string { return text(rawOf(item, path)) }

// rawOf returns a member of an object, dotted from it, and null when it is not there.
func rawOf(item json.RawMessage, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(item, &object) != nil || object[name] == nil {
			return json.RawMessage("null")
		}
		item = object[name]
	}
	return item
}

// text returns a value for people: strings without quotes, null as nothing, numbers digit by digit, the rest as JSON.
func text(value json.RawMessage) string {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || string(value) == "null" {
		return ""
	}
	if value[0] == '"' {
		var s string
		if json.Unmarshal(value, &s) == nil {
			return s
		}
	}
	var b bytes.Buffer
	if json.Compact(&b, value) != nil {
		return string(value)
	}
	return b.String()
}
