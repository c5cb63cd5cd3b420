package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// agentHandler answers a paid request with one JSON value. charge is a lower price in credits, or nil for the full price. The
// error is logged, so it must not contain the prompt.
type agentHandler func(ctx context.Context, r PaidRequest) (body []byte, charge *toll.Credits, err error)

// agentHandler returns the handler for the requests of an account, or nil if the account has no handler.
func (c *Core) agentHandler(a *account) agentHandler {
	switch {
	case c.opts.Handler != nil:
		return c.function
	case a.handler.Kind == HandlerDemo && a.environment != toll.Live: // a login can be for live
		return demo
	case a.handler.Kind == HandlerHTTP:
		return func(ctx context.Context, r PaidRequest) ([]byte, *toll.Credits, error) {
			return c.program(ctx, a.handler, r)
		}
	case a.handler.Kind == HandlerHost:
		return func(ctx context.Context, r PaidRequest) ([]byte, *toll.Credits, error) {
			body, err := hostAgent(ctx, a.handler, r)
			return body, nil, err
		}
	}
	return nil
}

var errTooLong = fmt.Errorf("the handler's answer is longer than %d bytes", maxPaidAnswer)

// ask runs a handler. It returns an error after a panic, after a timeout, and for an answer of more than [maxPaidAnswer] bytes.
// A handler that ignores the timeout keeps running, and its answer is discarded.
func (c *Core) ask(
	ctx context.Context, handle agentHandler, r PaidRequest,
) (body []byte, charge *toll.Credits, err error) {
	type outcome struct {
		body   []byte
		charge *toll.Credits
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		o.body, o.charge, o.err = c.run(ctx, handle, r)
		done <- o
	}()
	select {
	case o := <-done:
		return o.body, o.charge, o.err
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

func (c *Core) run(
	ctx context.Context, handle agentHandler, r PaidRequest,
) (body []byte, charge *toll.Credits, err error) {
	defer func() {
		if v := recover(); v != nil {
			c.log.Error("the agent handler panicked", "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	body, charge, err = handle(ctx, r)
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case len(body) > maxPaidAnswer:
		err = errTooLong
	}
	return body, charge, err
}

// function calls [Options.Handler] and encodes its result.
func (c *Core) function(ctx context.Context, r PaidRequest) ([]byte, *toll.Credits, error) {
	value, err := c.opts.Handler(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	body, err := x402.Encode(value)
	if err != nil {
		err = errors.New("the handler's result cannot be encoded as JSON")
	}
	return body, nil, err
}

func demo(_ context.Context, r PaidRequest) ([]byte, *toll.Credits, error) {
	body, err := x402.Encode(struct {
		Demo   bool   `json:"demo"`
		Answer string `json:"answer"`
	}{true, "You said: " + r.Prompt})
	return body, nil, err
}

// program calls an HTTP server of the operator. A response header can lower the charge; the core does not forward it.
func (c *Core) program(
	ctx context.Context, cfg HandlerConfig, r PaidRequest,
) (body []byte, charge *toll.Credits, err error) {
	body, header, err := postJSON(ctx, cfg.URL, cfg.Headers, r)
	if err != nil {
		return nil, nil, err
	}
	var object map[string]json.RawMessage
	if x402.Decode(body, &object) != nil || object == nil {
		return nil, nil, errors.New("the handler's answer is not a JSON object")
	}
	if used := header.Get(c.opts.Names.HeaderCreditsUsed()); used != "" {
		n, err := toll.ParseCredits(strings.TrimSpace(used))
		if err != nil {
			return nil, nil, fmt.Errorf("the handler's response header %s is not a number of credits", c.opts.Names.HeaderCreditsUsed())
		}
		charge = &n
	}
	return body, charge, nil
}

// hostAgent calls an agent of the chat host through its chat completions API, in a separate session.
func hostAgent(ctx context.Context, cfg HandlerConfig, r PaidRequest) ([]byte, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	headers := map[string]string{}
	if cfg.Token != "" {
		headers["Authorization"] = "Bearer " + cfg.Token
	}
	body, _, err := postJSON(ctx, strings.TrimRight(cfg.URL, "/")+"/v1/chat/completions", headers, struct {
		Model    string    `json:"model"`
		Messages []message `json:"messages"`
	}{"openclaw/" + cfg.Agent, []message{{"user", r.Prompt}}})
	if err != nil {
		return nil, err
	}
	var out struct {
		Choices []struct {
			Message message `json:"message"`
		} `json:"choices"`
	}
	if x402.Decode(body, &out) != nil || len(out.Choices) == 0 || out.Choices[0].Message.Content == "" {
		return nil, errors.New("the chat host returned no answer")
	}
	return x402.Encode(struct {
		Answer string `json:"answer"`
	}{out.Choices[0].Message.Content})
}

// operators is the client for servers of the operator. It does not follow redirects, because only the operator may choose the
// addresses that receive prompts and credentials.
var operators = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// postJSON posts a value and returns the body and header of a 2xx response of at most [maxPaidAnswer] bytes.
func postJSON(
	ctx context.Context, url string, headers map[string]string, value any,
) ([]byte, http.Header, error) {
	in, err := x402.Encode(value)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(in))
	if err != nil {
		return nil, nil, err
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := operators.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 != 2 {
		return nil, nil, fmt.Errorf("the handler responded with status %d", res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxPaidAnswer+1))
	if err == nil && len(body) > maxPaidAnswer {
		err = errTooLong
	}
	return body, res.Header, err
}
