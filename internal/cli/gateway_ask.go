package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/gateway"
	"github.com/tollhq/toll/x402"
)

// coreAddress says where a core runs and how it is called.
type coreAddress struct {
	coreFlags
	url, token string
}

func (f *coreAddress) add(c *cobra.Command) {
	f.addData(c)
	c.Flags().StringVar(&f.url, "core-url", "http://"+gateway.DefaultListen, "address of the core")
	secret(c, &f.token, "gateway-token")
}

// errNoCore is a core that does not answer.
var errNoCore = errors.New("the core does not answer: start it with toll gateway serve, or set its address with --core-url")

// do calls a path of the core with the core token and decodes its answer into out. It returns the
// status of the answer. Errors: [errNoCore], [gateway.Error] of the core.
func (f *coreAddress) do(ctx context.Context, method, path, token string, in, out any) (int, error) {
	var body io.Reader
	if in != nil {
		b, err := x402.Encode(in)
		if err != nil {
			return 0, err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(f.url, "/")+path, body)
	if err != nil {
		return 0, usagef("--core-url: %q is not a valid URL", f.url)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	h := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := h.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", f.url, errNoCore)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxArgument))
	if err != nil {
		return res.StatusCode, fmt.Errorf("%s: %w", f.url, errNoCore)
	}
	var failed struct {
		Error *gateway.Error `json:"error"`
	}
	if x402.Decode(b, &failed) == nil && failed.Error != nil {
		return res.StatusCode, failed.Error
	}
	if res.StatusCode != http.StatusOK || x402.Decode(b, out) != nil {
		return res.StatusCode, fmt.Errorf("unexpected status %d from %s: the server is not a gateway core of this release", res.StatusCode, f.url)
	}
	return res.StatusCode, nil
}

func gatewayAsk(a *app) *cobra.Command {
	var f coreAddress
	flags := []flag{
		{"plan", "planId", planID, "plan whose credits pay for the call; default the plan of the core"},
		{"agent-id", "agentId", agentID, "restrict the payment to one agent; default the agent of the core"},
		{"payment-type", "paymentType", word.offering("crypto", "fiat"), "crypto or fiat; default the type of the core"},
		{"max-credits", "maxCredits", digits, "maximum credits to pay; default the maximum of the plan"},
	}
	c := command("ask URL PROMPT", "Call a paid agent through a running core", nil)
	f.add(c)
	inputs := a.inputs(c, flags)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := inputs()
		if err != nil {
			return err
		}
		if in["planId"] != nil || in["agentId"] != nil {
			if err := a.loadProfile(); err != nil {
				return err
			}
			if err := a.resolveFlags(cmd.Context(), flags, in); err != nil {
				return err
			}
		}
		in["agentUrl"], in["prompt"] = args[0], args[1]
		return askAgent(cmd.Context(), a, &f, in)
	}
	c.Long = `Send a prompt to a paid agent through a running core, as a chat host would. The response goes to stdout, the cost to stderr.
The call spends credits of the core's workspace and does not buy any. Names of plans and agents are looked up with your API key, not
with the API key of the core.`
	c.Example = `toll gateway ask https://agent.example.com/ask "What is in this week's report?"`
	return c
}

// agentAnswer is the result of the tool that asks agents, as far as it is shown here.
type agentAnswer struct {
	Response json.RawMessage `json:"response"`
	Payment  *struct {
		CreditsRedeemed  string `json:"creditsRedeemed"`
		RemainingBalance string `json:"remainingBalance"`
		Transaction      string `json:"transaction"`
	} `json:"payment"`
	Warnings []string `json:"warnings"`
}

func askAgent(ctx context.Context, a *app, f *coreAddress, params body) error {
	token, err := f.coreToken(a)
	if err != nil {
		return err
	}
	path := "/gateway/v1/tools/" + url.PathEscape(a.set.names.Tool("queryAgent"))
	in := map[string]any{
		"params": params,
		"caller": gateway.Caller{SessionKey: "toll gateway ask", SenderIsOwner: true, Channel: "cli"},
	}
	var out struct {
		Result json.RawMessage `json:"result"`
	}
	if _, err := f.do(ctx, http.MethodPost, path, token, in, &out); err != nil {
		return askFailed(&a.console, err)
	}
	var got agentAnswer
	if err := x402.Decode(out.Result, &got); err != nil {
		return errors.New("the response of the core cannot be read")
	}
	for _, w := range got.Warnings {
		a.say("warning", "%s", w)
	}
	if p := got.Payment; p != nil {
		burned, _ := toll.ParseCredits(p.CreditsRedeemed) // of a core, which writes numbers
		a.say("receipt", "%s, %s left, transaction %s", burned.Text(), cmp.Or(p.RemainingBalance, "?"), cmp.Or(p.Transaction, "?"))
	}
	if a.asJSON() {
		return a.show(out.Result)
	}
	var text string
	if x402.Decode(got.Response, &text) == nil {
		for line := range strings.Lines(text) {
			if _, err := fmt.Fprintln(a.out, clean(strings.TrimRight(line, "\r\n"))); err != nil {
				return err
			}
		}
		return nil
	}
	return a.writeJSON(got.Response)
}

// coreToken is the token of the environment, else that of the data directory.
func (f *coreAddress) coreToken(a *app) (string, error) {
	if f.token != "" {
		return f.token, nil
	}
	dir, err := f.dir(a)
	if err != nil {
		return "", err
	}
	return gateway.CoreToken(dir)
}

// askFailed shows an error of a tool, with the exit code of its kind.
func askFailed(con *console, err error) error {
	e, ok := errors.AsType[*gateway.Error](err)
	if !ok {
		return err
	}
	if con.asJSON() {
		if b, err := x402.Encode(e); err == nil {
			fmt.Fprintf(con.err, "%s\n", b)
		}
	} else {
		con.say("error", "%s (%s)", strings.TrimSuffix(e.Message, "."), e.Code)
		if e.Hint != "" {
			con.say("hint", "%s", e.Hint)
		}
	}
	switch {
	case e.Code == gateway.NotAuthenticated:
		return printed(exitNotSignedIn)
	case e.Code == gateway.PaymentRequired:
		return printed(exitPayment)
	case e.Code == gateway.InvalidParams || e.Code == gateway.PlanRequired:
		return printed(exitUsage)
	case e.Retryable:
		return printed(exitTryAgain)
	}
	return printed(exitFailed)
}
