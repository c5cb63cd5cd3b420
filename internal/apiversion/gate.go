// Package apiversion defines the versions of the API: which ones exist, which one a request selects, and how bodies are
// converted between an older version and the newest, which the rest of the service uses.
package apiversion

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Version is an API version, MAJOR.MINOR. Patch releases do not change the API.
type Version struct{ Major, Minor int }

// Range of the served versions. The floor is supported permanently.
var (
	Floor   = Version{1, 0}
	Current = Version{1, 1}
)

// From names the source of an effective version.
type From string

// Sources of a version, in order of precedence.
const (
	FromHeader   From = "header"
	FromKey      From = "apiKey"
	FromFallback From = "fallback"
)

// ErrVersion is the cause of every rejected version.
var ErrVersion = errors.New("unknown or out-of-range API version")

// maxVersionBytes bounds a version text.
const maxVersionBytes = 32

// String returns MAJOR.MINOR.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Before reports whether v is older than w.
func (v Version) Before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}

// Parse parses 1.0, v1.0 or 1.0.7, whose patch part is ignored. The error wraps [ErrVersion] for any other text and for
// versions outside the served range.
func Parse(s string) (Version, error) {
	v, ok := scan(s)
	if !ok {
		return Version{}, fmt.Errorf("%w: the format must be MAJOR.MINOR", ErrVersion)
	}
	if v.Before(Floor) || Current.Before(v) {
		return Version{}, fmt.Errorf("%w: %s is not between %s and %s", ErrVersion, v, Floor, Current)
	}
	return v, nil
}

func scan(s string) (v Version, ok bool) {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(s) > maxVersionBytes || len(parts) < 2 || len(parts) > 3 {
		return v, false
	}
	var n [3]int
	for i, part := range parts { // 0 to 99999 without leading zeros
		var err error
		n[i], err = strconv.Atoi(part)
		if err != nil || n[i] < 0 || len(part) > 5 || strconv.Itoa(n[i]) != part {
			return v, false
		}
	}
	return Version{n[0], n[1]}, true
}

// Resolve returns the version of a request: from its version header, else the pin of its API key, else the floor. header holds
// all header values; pin is empty without a key. For an invalid header or pin the error wraps [ErrVersion], and version and
// source come from the next source.
func Resolve(header []string, pin string) (Version, From, error) {
	var bad error
	if len(header) == 1 {
		v, err := Parse(header[0])
		if err == nil {
			return v, FromHeader, nil
		}
		bad = err
	} else if len(header) > 1 {
		bad = fmt.Errorf("%w: the header was sent %d times", ErrVersion, len(header))
	}
	if pin != "" {
		v, err := Parse(pin)
		if err == nil {
			return v, FromKey, bad
		}
		if bad == nil {
			bad = err
		}
	}
	return Floor, FromFallback, bad
}

// Change is one difference between a version and the one before it.
type Change struct {
	// Since is the version that brought the change.
	Since Version
	// Summary is the sentence of the changelog.
	Summary string
	// Ops are the ids of the operations that it touches.
	Ops []string
	// Up converts a request body of an older version to Since. nil if requests do not differ.
	Up func(body []byte) ([]byte, error)
	// Down converts a response body of Since to the previous version. nil if responses do not differ.
	Down func(body []byte) ([]byte, error)
}

// changes lists every change, oldest release first, one file per release.
var changes = slices.Concat(release1_1)

// Changes returns every change, oldest release first.
func Changes() []Change { return slices.Clone(changes) }

// Gated returns the versions that brought at least one change, oldest first.
func Gated() []Version {
	var out []Version
	for _, c := range changes {
		if len(out) == 0 || out[len(out)-1] != c.Since {
			out = append(out, c.Since)
		}
	}
	return out
}

// Up converts the request body of an operation from version v to the newest. Invalid JSON is returned unchanged, for the decoder to reject.
func Up(op string, v Version, body []byte) ([]byte, error) {
	var err error
	for _, c := range changes {
		if c.Up != nil && v.Before(c.Since) && slices.Contains(c.Ops, op) {
			if body, err = c.Up(body); err != nil {
				return nil, fmt.Errorf("API version %s, operation %s: %w", c.Since, op, err)
			}
		}
	}
	return body, nil
}

// Down converts the newest response body of an operation to version v.
func Down(op string, v Version, body []byte) ([]byte, error) {
	var err error
	for _, c := range slices.Backward(changes) {
		if c.Down != nil && v.Before(c.Since) && slices.Contains(c.Ops, op) {
			if body, err = c.Down(body); err != nil {
				return nil, fmt.Errorf("API version %s, operation %s: %w", c.Since, op, err)
			}
		}
	}
	return body, nil
}
