package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Exit codes (wire contract, section 24).
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotSignedIn = 3
	exitPayment     = 4
	exitNotFound    = 5
	exitConflict    = 6
	exitTryAgain    = 7
)

// printed is an outcome that was shown already and only decides the exit code.
type printed int

func (printed) Error() string { return "" }

func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if shown, ok := errors.AsType[printed](err); ok {
		return int(shown)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	e, ok := errors.AsType[*toll.Error](err)
	if !ok || e.Code == toll.CodeUnavailable && e.Status == 0 { // nothing answered
		return exitFailed
	}
	return exitOfStatus(e.HTTPStatus())
}

var exitCodes = map[int]int{
	http.StatusUnauthorized: exitNotSignedIn, http.StatusPaymentRequired: exitPayment, http.StatusNotFound: exitNotFound,
	http.StatusConflict: exitConflict, http.StatusTooManyRequests: exitTryAgain, http.StatusServiceUnavailable: exitTryAgain,
}

func exitOfStatus(status int) int {
	if status >= 200 && status < 300 {
		return exitDone
	}
	return cmp.Or(exitCodes[status], exitFailed)
}

// report writes an error to stderr: as the error body if the output is JSON, otherwise as text.
func (a *app) report(err error) {
	if _, ok := errors.AsType[printed](err); ok {
		return
	}
	_, isUsage := errors.AsType[usageError](err)
	e, isTyped := errors.AsType[*toll.Error](err)
	isTyped = isTyped && !isUsage
	if a.asJSON() {
		code := "CLI.FAILED"
		if isUsage {
			code = "CLI.USAGE"
		}
		var out any = map[string]any{"code": code, "message": err.Error()}
		if isTyped {
			out = e.Body(e.CorrelationID, "")
		}
		var text bytes.Buffer
		if b, err := x402.Encode(out); err == nil && json.Indent(&text, b, "", "  ") == nil {
			fmt.Fprintln(a.err, text.String())
			return
		}
	}
	if !isTyped {
		a.say("error", "%s", err)
		if isUsage {
			a.say("", "Run the command with --help to see its usage.")
		}
		return
	}
	a.say("error", "%s", e)
	if errors.Is(err, context.Canceled) {
		a.say("cause", "interrupted")
		return
	}
	if e.Code == toll.CodeUnavailable && e.Status == 0 {
		a.say("hint", "Is toll serve running at %s? Set another address with --url, TOLL_URL, or toll config set url.", a.client().URL())
	} else if hint := a.hintFor(e); hint != "" {
		a.say("hint", "%s", hint)
	}
	if page := pageOf(e); page != "" {
		a.say("page", "%s", page)
	}
	if e.Err != nil {
		a.say("cause", "%s", e.Err)
	}
	a.sayWhere(e)
	if exitCode(err) == exitNotSignedIn && a.set.key == "" {
		a.say("hint", "No API key is set: use TOLL_API_KEY, --api-key-file, or the configuration file.")
	}
	if a.flags.verbose && e.CorrelationID != "" {
		a.say("id", "%s", e.CorrelationID)
	}
}

// sayWhere prints the members that an error is about, unless its text contains them.
func (a *app) sayWhere(e *toll.Error) {
	if path, ok := e.Params["path"].(string); ok && !strings.Contains(e.Error(), path) {
		a.say("at", "%s", path)
	}
	faults, _ := e.Params["errors"].([]any)
	for _, fault := range faults {
		members, _ := fault.(map[string]any)
		if line := fmt.Sprintf("%s: %s", members["path"], members["message"]); !strings.Contains(e.Error(), line) {
			a.say("at", "%s", line)
		}
	}
}

// cause is an error of the network without the address, which a table shows already.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// count returns a number with its word, in the singular or plural.
func count[N int | string](n N, word string) string {
	text := fmt.Sprint(n)
	if text != "1" {
		word += "s"
	}
	return text + " " + word
}
