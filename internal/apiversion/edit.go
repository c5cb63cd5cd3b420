package apiversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// Bodies are edited as text, at the places of a change. Everything else stays byte for byte: large numbers, the order of
// members, and also duplicates and bad UTF-8, which the strict decoder must reject.

var errNotJSON = errors.New("the body is not a JSON value of the expected shape")

// span is a part of a text, from start up to and without end.
type span struct{ start, end int }

// member is one name and value of an object.
type member struct {
	name       string
	key, value span // places in the text that the object is part of
}

type edit struct {
	at   span
	text string
}

// apply makes non-overlapping edits.
func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return a.at.start - b.at.start })
	var out []byte
	from := 0
	for _, e := range edits {
		out = append(append(out, text[from:e.at.start]...), e.text...)
		from = e.at.end
	}
	return append(out, text[from:]...)
}

// members returns the members of an object, including duplicates.
func members(text []byte, at span) ([]member, error) {
	var out []member
	err := walk(text, at, '{', func(dec *json.Decoder, base int) error {
		before := base + int(dec.InputOffset())
		t, err := dec.Token()
		if err != nil {
			return err
		}
		m := member{key: span{0, base + int(dec.InputOffset())}}
		m.name, _ = t.(string)
		quote := bytes.IndexByte(text[before:m.key.end], '"')
		if quote < 0 {
			return errNotJSON
		}
		m.key.start = before + quote
		m.value, err = value(dec, base)
		out = append(out, m)
		return err
	})
	return out, err
}

// elements returns the elements of an array.
func elements(text []byte, at span) ([]span, error) {
	var out []span
	err := walk(text, at, '[', func(dec *json.Decoder, base int) error {
		v, err := value(dec, base)
		out = append(out, v)
		return err
	})
	return out, err
}

func walk(text []byte, at span, open json.Delim, each func(dec *json.Decoder, base int) error) error {
	dec := json.NewDecoder(bytes.NewReader(text[at.start:at.end]))
	dec.UseNumber()
	if t, err := dec.Token(); err != nil || t != open {
		return errNotJSON
	}
	for dec.More() {
		if err := each(dec, at.start); err != nil {
			return errNotJSON
		}
	}
	if _, err := dec.Token(); err != nil {
		return errNotJSON
	}
	return nil
}

func value(dec *json.Decoder, base int) (span, error) {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return span{}, err
	}
	end := base + int(dec.InputOffset())
	return span{end - len(raw), end}, nil
}

func whole(text []byte) span { return span{0, len(text)} }

// find returns the members with a name.
func find(ms []member, name string) []member {
	var out []member
	for _, m := range ms {
		if m.name == name {
			out = append(out, m)
		}
	}
	return out
}

// appendMembers returns the edit that appends members to an object.
func appendMembers(text []byte, at span, list string) (edit, error) {
	ms, err := members(text, at)
	if err != nil {
		return edit{}, err
	}
	end := bytes.LastIndexByte(text[at.start:at.end], '}') + at.start
	if len(ms) > 0 {
		list = "," + list
	}
	return edit{at: span{end, end}, text: list}, nil
}
