// Package gzipped has helpers for compressed responses.
package gzipped

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strings"
)

// Bytes compresses a text at a level of compress/gzip.
func Bytes(plain []byte, level int) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err == nil {
		_, err = z.Write(plain)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		panic(err) // a level of the package, and memory
	}
	return b.Bytes()
}

// Taken reports whether the client accepts an encoding, without "q=0".
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
