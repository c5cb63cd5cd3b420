// Package gzipped has helpers for compressed responses.
package gzipped

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
)

// Bytes returns plain compressed with gzip, at a level of package compress/gzip. It panics on an invalid level.
func Bytes(plain []byte, level int) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err == nil {
		_, err = z.Write(plain)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		panic(err) // impossible for a valid level: the buffer does not fail
	}
	return b.Bytes()
}

// Taken reports whether the Accept-Encoding headers of a request name an encoding, with a quality of at least 0.1.
func Taken(r *http.Request, encoding string) bool {
	for _, part := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, quality, _ := strings.Cut(part, ";")
		quality = strings.ReplaceAll(quality, " ", "")
		if strings.EqualFold(strings.TrimSpace(name), encoding) && quality != "q=0" && !strings.HasPrefix(quality, "q=0.0") {
			return true
		}
	}
	return false
}
