package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

const maxArgument = 1 << 20

// jsonArgument reads JSON that is given inline, as a path that ends in .json, as @path, or as - for stdin. Its bytes are
// kept, so that numbers stay exact. Errors give the argument its name.
func (con *console) jsonArgument(name, arg string) (json.RawMessage, error) {
	b, from, err := con.argument(arg, strings.HasSuffix(strings.ToLower(strings.TrimSpace(arg)), ".json"))
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, usagef("%s: %s is not JSON", name, from)
	}
	return b, nil
}

// objectArgument is jsonArgument for an object.
func (a *app) objectArgument(flag, arg string) (json.RawMessage, error) {
	b, err := a.jsonArgument("--"+flag, arg)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{")) {
		return nil, usagef("--%s must be a JSON object", flag)
	}
	a.warnUnknown(flag, b)
	return b, nil
}

// textArgument reads one word as argument does.
func (con *console) textArgument(arg string) (string, error) {
	b, _, err := con.argument(arg, false)
	return strings.TrimSpace(string(b)), err
}

// argument reads text that is given inline, as @path, as - for stdin, or, when isPath, as a path.
func (con *console) argument(arg string, isPath bool) (text []byte, from string, err error) {
	trimmed := strings.TrimSpace(arg)
	var r io.Reader
	switch {
	case trimmed == "-":
		r, from = con.in, "stdin"
	case strings.HasPrefix(trimmed, "@"), isPath:
		from = strings.TrimPrefix(trimmed, "@")
		f, err := os.Open(from)
		if err != nil {
			return nil, from, err
		}
		defer f.Close()
		r = f
	default:
		return []byte(arg), "the text", nil
	}
	b, err := io.ReadAll(io.LimitReader(r, maxArgument+1))
	if err == nil && len(b) > maxArgument {
		err = fmt.Errorf("%s is larger than 1 MiB", from)
	}
	return b, from, err
}
