package paida2a

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/a2asrv"
	"github.com/a2aproject/a2a-go/log"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/pace"
	"github.com/tollhq/toll/x402"
)

// Codes of JSON-RPC errors (A2A specification, error handling).
const (
	codeParse             = -32700
	codeInvalidRequest    = -32600
	codeExtensionRequired = -32008
)

// sourceKey is the context key of the address that sent a request.
type sourceKey struct{}

// rpcHandler validates requests before passing them to the SDK, and rejects messages of clients that do not support payments.
type rpcHandler struct {
	log     *slog.Logger
	maxBody int64
	rpc     http.Handler
}

func (f *rpcHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, f.maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			refuse(w, http.StatusRequestEntityTooLarge, nil, codeInvalidRequest, "The request is too large.")
			return
		}
		refuse(w, http.StatusBadRequest, nil, codeParse, "The request could not be read.")
		return
	}
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := x402.Decode(body, &req); err != nil {
		refuse(w, http.StatusOK, nil, codeParse, toll.AsError(err).Text())
		return
	}
	if !validID(req.ID) {
		refuse(w, http.StatusOK, nil, codeInvalidRequest, "A request must have an id that is a string or an integer.")
		return
	}
	if activates(r.Header) {
		w.Header().Set(a2asrv.ExtensionsMetaKey, ExtensionURI)
	} else if req.Method == "message/send" || req.Method == "message/stream" {
		refuse(w, http.StatusOK, req.ID, codeExtensionRequired,
			"Tasks of this agent require payment: activate the extension "+ExtensionURI+" with the header "+a2asrv.ExtensionsMetaKey+".")
		return
	}
	r = r.Clone(context.WithValue(log.WithLogger(r.Context(), f.log), sourceKey{}, pace.Source(r)))
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.rpc.ServeHTTP(w, r)
}

// validID reports whether raw is a string or an integer, the valid JSON-RPC ids. Notifications, without an id, cannot be paid.
func validID(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return false
	}
	if raw[0] == '"' {
		return true
	}
	var n toll.Int
	return x402.Decode(raw, &n) == nil && string(raw) != "null"
}

func activates(h http.Header) bool {
	all := strings.Split(strings.Join(h.Values(a2asrv.ExtensionsMetaKey), ","), ",")
	return slices.ContainsFunc(all, func(uri string) bool { return strings.TrimSpace(uri) == ExtensionURI })
}

func refuse(w http.ResponseWriter, status int, id json.RawMessage, code int, message string) {
	if id == nil {
		id = json.RawMessage("null")
	}
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	b, err := x402.Encode(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   rpcError        `json:"error"`
	}{"2.0", id, rpcError{code, message}})
	if err != nil {
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // the caller may have disconnected
}
