package traces_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/traces"
)

// A line that is written with the context of a request, or with one that was made of it, has its id; others have none.
func TestLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(traces.Log(slog.NewTextHandler(&out, nil))).With("a", 1)
	request := &traces.Context{Context: t.Context(), ID: "corr-1"}
	timed, cancel := context.WithTimeout(request, time.Minute)
	defer cancel()
	for _, ctx := range []context.Context{request, timed, context.WithoutCancel(timed)} {
		out.Reset()
		log.ErrorContext(ctx, "x")
		if !strings.Contains(out.String(), "msg=x a=1 correlationId=corr-1\n") {
			t.Error(out.String())
		}
	}
	out.Reset()
	log.ErrorContext(t.Context(), "x")
	if strings.Contains(out.String(), traces.Attr) || traces.ID(t.Context()) != "" {
		t.Error(out.String())
	}
}

// A context of a request ends with the request, and what was made of it as well.
func TestContext_Ends(t *testing.T) {
	base, end := context.WithCancel(t.Context())
	request := &traces.Context{Context: base, ID: "corr-1"}
	made, cancel := context.WithCancel(request)
	defer cancel()
	end()
	if <-made.Done(); made.Err() == nil || request.Err() == nil {
		t.Error("it did not end")
	}
}
