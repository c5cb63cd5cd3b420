package toll_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// TestCodes_Table: each code is in the table once, with a message and a next step.
func TestCodes_Table(t *testing.T) {
	rows := map[toll.Code]bool{}
	for _, i := range toll.Codes() {
		if rows[i.Code] {
			t.Errorf("%s has two rows", i.Code)
		}
		rows[i.Code] = true
		if i.Message == "" || !strings.HasSuffix(i.Message, ".") {
			t.Errorf("%s: the message %q is no sentence", i.Code, i.Message)
		}
		if i.Status >= 400 && !strings.HasSuffix(i.Hint, ".") {
			t.Errorf("%s: the hint %q names no next step", i.Code, i.Hint)
		}
		if i.Status == 422 || i.Status != 0 && (i.Status < 200 || i.Status > 599) {
			t.Errorf("%s: status %d", i.Code, i.Status)
		}
	}
	if i := toll.Code("BCK.NEW.0001").Info(); i.Status != 500 {
		t.Errorf("an unknown code has status %d", i.Status)
	}
}

func TestError_Body(t *testing.T) {
	cause := errors.New("canary of the inside")
	e := toll.NewError(toll.CodePlanNotFound).WithDetails("planId %s", "11111").WithHint("Check the id.").WithParam("planId", "11111").WithCause(cause)
	b := must.Get(json.Marshal(e.Body("1019366f", "https://pay.example.com/docs/errors")))(t)
	want := `{"code":"BCK.PROTOCOL.0003","message":"No plan has this id.","httpStatus":404,"category":"business","hint":"Check the id.","details":"planId 11111",` +
		`"retryable":false,"correlationId":"1019366f","docsUrl":"https://pay.example.com/docs/errors#bck-protocol-0003","params":"{\"planId\":\"11111\"}"}`
	if string(b) != want {
		t.Errorf("got %s\nwant %s", b, want)
	}
	if strings.Contains(e.Error()+string(b), "canary") {
		t.Error("the cause is shown")
	}
	var body toll.ErrorBody
	must.Do(t, json.Unmarshal(b, &body))
	back := fmt.Errorf("over the wire: %w", body.Err())
	if !errors.Is(back, toll.ErrPlanNotFound) || errors.Is(back, toll.ErrAgentNotFound) {
		t.Errorf("%v is not what it was", back)
	}
	if got := toll.AsError(back); got.Params["planId"] != "11111" || got.CorrelationID != "1019366f" {
		t.Errorf("%+v", got)
	}
	if got := toll.AsError(cause); got.Code != toll.CodeInternal || strings.Contains(got.Error(), "canary") {
		t.Errorf("a foreign error became %v", got)
	}
	if toll.AsError(nil) != nil {
		t.Error("no error became one")
	}
}

// The With methods copy, so that the sentinels stay as they are.
func TestError_WithCopies(t *testing.T) {
	base := toll.NewError(toll.CodeBadNumber).WithParam("a", 1)
	_ = base.WithParam("b", 2).WithHint("h").WithDetails("d").WithReason("r")
	if len(base.Params) != 1 || base.Hint != "" || base.Details != "" || base.Reason != "" {
		t.Errorf("%+v changed", base)
	}
}

// TestError_SaysOnce: details that repeat the message are left out of the text.
func TestError_SaysOnce(t *testing.T) {
	e := toll.NewError(toll.CodeCardAuthentication)
	if got := e.WithDetails("%s", e.Text()).Error(); got != e.Error() {
		t.Error(got)
	}
}

// TestError_HintNamesIDs: a hint whose path has a place for an id has the id there, when the error
// says it.
func TestError_HintNamesIDs(t *testing.T) {
	hint := func(e *toll.Error) string { return e.Body("", "").Hint }
	for _, c := range []struct {
		e    *toll.Error
		want string
	}{
		{toll.NewError(toll.CodePlanNotAttached).WithDetails("agentId 50, planId 44"), "List the plans of the agent with GET /api/v1/protocol/agents/50/plans."},
		{toll.NewError(toll.CodeFiatPlanOnCryptoRoute).WithDetails("planId 44"), "Use POST /api/v1/protocol/plans/44/checkout, or send the delegationId of a card delegation."},
		{toll.NewError(toll.CodeFiatPlanOnCryptoRoute), "Use POST /api/v1/protocol/plans/{planId}/checkout, or send the delegationId of a card delegation."},
		{toll.NewError(toll.CodeReleaseOfSettled).WithDetails("agentRequestId req_1"), "Read the settlement with GET /api/v1/x402/settlements/req_1."},
		{toll.NewError(toll.CodeReleaseOfSettled).WithDetails("agentRequestId a/../b"), "Read the settlement with GET /api/v1/x402/settlements/{agentRequestId}."},
		{toll.NewError(toll.CodeReleaseOfSettled).WithDetails(`agentRequestId "x"`), "Read the settlement with GET /api/v1/x402/settlements/{agentRequestId}."},
	} {
		if got := hint(c.e); got != c.want {
			t.Errorf("%s: %q, want %q", c.e.Details, got, c.want)
		}
	}
}

func TestError_HTTPStatusOfNil(t *testing.T) {
	if status := toll.AsError(nil).HTTPStatus(); status != 200 {
		t.Errorf("no error has status %d", status)
	}
}
