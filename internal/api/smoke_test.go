package api_test

import "testing"

func TestPaidCall(t *testing.T) {
	each(t, func(t *testing.T, s *stack) {
		plan := s.plan(s.b1, freePlan)
		agent := s.agent(s.b1, plan)
		token, _ := s.token(s.s1, plan)

		v := s.do(s.b1, "POST", base+"/x402/verify", paymentBody(plan, token, `,"hold":true`))
		if v.status != 200 || v.member(t, "isValid") != true || v.text(t, "agentId") != "" && v.text(t, "agentId") != agent {
			t.Fatalf("verify: %d %s", v.status, v.body)
		}
		id := v.text(t, "agentRequestId")
		first := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"agentRequestId":"`+id+`"`))
		if first.status != 200 || first.text(t, "creditsRedeemed") != "5" || first.header.Get("Idempotency-Replayed") != "" {
			t.Fatalf("settle: %d %s", first.status, first.body)
		}
		again := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"agentRequestId":"`+id+`"`))
		if again.status != 200 || string(again.body) != string(first.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("replay: %d %s %v", again.status, again.body, again.header)
		}
		other := s.do(s.b1, "POST", base+"/x402/settle", paymentBody(plan, token, `,"maxAmount":"7","agentRequestId":"`+id+`"`))
		if other.status != 409 || other.code() != "BCK.X402.0906" || other.text(t, "errorReason") != "settle_conflict" || other.member(t, "success") != false ||
			other.member(t, "transaction") != "" || other.text(t, "network") != "eip155:84532" {
			t.Errorf("conflict: %d %s", other.status, other.body)
		}
		b := s.do(s.s1, "GET", base+"/protocol/plans/"+plan+"/balance", "")
		if b.text(t, "balance") != "95" || b.text(t, "used") != "5" {
			t.Errorf("balance: %s", b.body)
		}
	})
}
