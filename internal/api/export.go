package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/list"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

const (
	// maxExports is how many exports a workspace runs at a time in this process.
	maxExports = 2
	// exportTime bounds an export from its first page to its last.
	exportTime = 60 * time.Second
	// exportPage is how many records of an export are in memory.
	exportPage = 100
)

var exportTypes = map[string]string{"csv": "text/csv", "ndjson": "application/x-ndjson"}

var exportQuery = query{
	"format", "csv or ndjson: return the whole list as a file, with the same filters and order. The last columns of a csv file repeat amounts of money as whole units. Paging is ignored. An export takes at most 60 s. " +
		"If an export fails, the service closes the connection. A workspace can run two exports at a time.",
}

type exports struct {
	mu      sync.Mutex
	running map[toll.Address]int
}

// begin returns what ends the export, or nil when the workspace has too many.
func (e *exports) begin(workspace toll.Address) func() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running[workspace] >= maxExports {
		return nil
	}
	if e.running == nil {
		e.running = map[toll.Address]int{}
	}
	e.running[workspace]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.running[workspace]--; e.running[workspace] == 0 {
			delete(e.running, workspace)
		}
	}
}

// export answers every record of a list that f reads by pages. Nothing is written before the first page is there, so that a refusal
// is an error as of the list. A later failure cuts the connection, because half of a file must not look like all of it.
func export[T any](ctx context.Context, c *call, of list.List, p store.Page, format string, f func(ctx context.Context, p store.Page) (store.List[T], error)) error {
	switch {
	case exportTypes[format] == "":
		return toll.Faults([]toll.Fault{{Path: "format", Message: "must be csv or ndjson"}})
	case !c.caller.Rights.Has(c.route.export):
		return auth.MissingRight(c.route.export)
	}
	end := c.h.exports.begin(c.caller.Address)
	if end == nil {
		e := toll.Errorf(toll.CodeRateLimited, "A workspace can run at most %d exports at a time.", maxExports)
		e.RetryAfterSecs = 5
		return e
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, exportTime)
	defer cancel()
	p.Number, p.Size, p.Cursor = 1, exportPage, ""
	read := func() ([]T, error) {
		within, done := context.WithTimeout(ctx, listTime)
		defer done()
		page, err := f(within, p)
		p.Cursor = page.Next
		return page.Items, err
	}
	items, err := read()
	if err != nil {
		return err
	}
	c.written = true
	header := c.w.Header()
	header["Content-Type"] = []string{exportTypes[format] + "; charset=utf-8"}
	header["Content-Disposition"] = []string{`attachment; filename="` + strings.TrimPrefix(c.route.op, "list") + "." + format + `"`}
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	rows := rows{}
	if format == "csv" {
		rows.columns, rows.whole = of.Members(), of.MembersToWhole()
	}
	for {
		var page bytes.Buffer
		if err = writeRows(&rows, &page, items); err == nil {
			_, err = c.w.Write(page.Bytes())
		}
		if err == nil && p.Cursor == "" {
			return nil
		}
		if err == nil {
			items, err = read()
		}
		if err != nil {
			c.h.Log.WarnContext(ctx, "export failed", "op", c.route.op, "error", err.Error())
			panic(http.ErrAbortHandler)
		}
	}
}

type rows struct {
	columns []string      // of CSV: paths of members, such as planId or registry.price; nil for NDJSON
	whole   []list.Column // of CSV: members to repeat as whole units, in the last columns
	begun   bool
}

func writeRows[T any](r *rows, out *bytes.Buffer, items []T) error {
	w := csv.NewWriter(out)
	if r.columns != nil && !r.begun {
		head := slices.Clone(r.columns)
		for _, c := range r.whole {
			head = append(head, c.WholeMember())
		}
		_ = w.Write(head) // of a buffer, which takes everything
	}
	r.begun = true
	for _, item := range items {
		line, err := x402.Encode(item)
		if err != nil {
			return err
		}
		if r.columns == nil {
			out.Write(line)
			out.WriteByte('\n')
			continue
		}
		var record list.Record
		if err := json.Unmarshal(line, &record); err != nil {
			return err
		}
		cells := make([]string, len(r.columns))
		for at, name := range r.columns {
			cells[at] = cellOf(record.At(name))
		}
		for _, c := range r.whole {
			cells = append(cells, c.Whole(record))
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return nil
}

// cellOf returns a value as a cell: a text made inert, nothing for null and for what is not there, and other values as JSON.
func cellOf(value json.RawMessage) string {
	var text *string
	if len(value) == 0 || json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	if text == nil {
		return ""
	}
	return plain.Cell(*text) // T158
}
