package pay_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

func task(id string, n toll.Credits) *toll.SubTaskInput {
	return &toll.SubTaskInput{AgentRequestID: &id, CreditsUsed: &n}
}

func margin(percent string) func(*x402.SettleRequest) {
	return func(r *x402.SettleRequest) {
		m, err := x402.ParseMargin(percent)
		if err != nil {
			panic(err)
		}
		r.MarginPercent = &m
	}
}

func TestSubTasksAndMargin(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(2, 50))
		s.mint(p, s1, 1000)
		base := s.call(p, nil, s.token(p, s1, nil))
		record := func(id string, n toll.Credits) {
			t.Helper()
			out, err := s.at(1).Requests.RecordSubTask(s.ctx, b1, task(id, n), nil)
			if err != nil || !out.Success || out.Data["subTaskId"] == "" {
				t.Fatalf("%v %+v", err, out)
			}
		}
		refused := func(c *call, id string, code toll.Code) {
			t.Helper()
			r, err := c.settle(s.one(), id, margin("5"))
			s.refused(r, err, code)
		}
		for sum, row := range map[toll.Credits]struct {
			percent string
			burned  toll.Credits
			asked   toll.Credits // 0: as burned
		}{
			10: {percent: "10", burned: 11}, 20: {percent: "2.5", burned: 21}, 40: {percent: "0", burned: 40}, 1: {percent: "0.0001", burned: 2},
			60: {percent: "10", burned: 50, asked: 66}, toll.MaxCredits: {percent: "10", burned: 50, asked: toll.MaxCredits},
		} {
			h := base.hold(nil)
			refused(base, h.AgentRequestID, toll.CodeMarginWithoutSubTasks)
			record(h.AgentRequestID, 0)
			refused(base, h.AgentRequestID, toll.CodeMarginWithoutSubTasks)
			record(h.AgentRequestID, sum-1)
			record(h.AgentRequestID, 1)
			r := base.burn(h.AgentRequestID, margin(row.percent))
			if *r.Amount != row.burned || (row.asked == 0) != (r.Extra.RequestedAmount == nil) || row.asked > 0 && *r.Extra.RequestedAmount != row.asked {
				t.Errorf("%d and %s%%: %d of %v", sum, row.percent, *r.Amount, r.Extra.RequestedAmount)
			}
			// The margin is content, what was recorded since is not.
			record(h.AgentRequestID, 1)
			again, err := base.settle(s.at(1), h.AgentRequestID, margin(row.percent))
			if err != nil || !bytes.Equal(again.Raw, r.Raw) {
				t.Errorf("%v %+v", err, again)
			}
			other, err := base.settle(s.at(1), h.AgentRequestID, margin("9.9999"))
			s.refused(other, err, toll.CodeSettleConflict)
		}

		// A nonce names the request, too; without a name there is none to have parts.
		c := base.nonce("n")
		h := c.hold(nil)
		record(h.AgentRequestID, 3)
		if r := c.burn("", margin("0")); *r.Amount != 3 {
			t.Errorf("%+v", r)
		}
		refused(base, "", toll.CodeMarginWithoutSubTasks)
		r, err := base.settle(s.one(), h.AgentRequestID, func(r *x402.SettleRequest) { margin("1")(r); amount(1)(r) })
		s.refused(r, err, toll.CodeAmountAndMargin)
		fixed := s.plan(func(p *toll.Plan) { p.Credits.IsRedemptionAmountFixed = true })
		s.mint(fixed, s1, 100)
		refused(s.call(fixed, nil, s.token(fixed, s1, nil)), "x", toll.CodeMarginOnFixedPlan)

		// An id that verify issued and did not store counts as well, and one that was chosen when it is held.
		v, err := base.verify(s.one(), nil)
		s.valid(v, err)
		record(v.AgentRequestID, 4)
		if r := base.burn(v.AgentRequestID, margin("0")); *r.Amount != 4 {
			t.Errorf("%+v", r)
		}
		base.hold(func(r *x402.VerifyRequest) { r.AgentRequestID = "mine" })
		record("mine", 5)
	})
}

func TestSubTasks_Records(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 1000)
		h := s.call(p, nil, s.token(p, s1, nil)).hold(nil)
		id := h.AgentRequestID
		for i, name := range []string{"first", "second", "third"} {
			in := task(id, toll.Credits(i))
			in.TaskName, in.Status = &name, &[]string{"success", "FAILED", ""}[i]
			if i == 1 {
				in.Metadata = []byte(`{"model":"m"}`)
			}
			s.clock.add(1000)
			must.Get(s.at(i).Requests.RecordSubTask(s.ctx, b1, in, nil))(s)
		}
		list, err := s.one().Requests.SubTasks(s.ctx, b1, id, store.Page{Ascending: true, Size: 2})
		must.Do(s, err)
		if list.Total != 3 || len(list.Items) != 2 || list.Next == "" || list.Items[0].Tag != "first" || list.Items[0].Status != toll.SubTaskSuccess ||
			list.Items[1].Status != toll.SubTaskFailed || string(list.Items[1].Metadata) != `{"model":"m"}` || list.Items[1].Credits != 1 {
			t.Fatalf("%+v", list)
		}
		list, err = s.one().Requests.SubTasks(s.ctx, b1, id, store.Page{Cursor: list.Next})
		if err != nil || len(list.Items) != 1 || list.Items[0].Tag != "third" || list.Items[0].Status != toll.SubTaskPending {
			t.Fatalf("%v %+v", err, list)
		}
		// To everybody but the owner of its plan the request is unknown.
		for _, who := range []toll.Address{b2, s1} {
			for _, id := range []string{id, "unknown", "req_forged", s.one().ledger.NewRequestID([16]byte{1})} {
				_, err := s.one().Requests.RecordSubTask(s.ctx, who, task(id, 1), nil)
				s.code(err, toll.CodeSubTaskRequestUnknown)
				_, err = s.one().Requests.SubTasks(s.ctx, who, id, store.Page{})
				s.code(err, toll.CodeSubTaskRequestUnknown)
			}
		}
		failed := errors.New("the answer cannot be kept")
		if _, err := s.one().Requests.RecordSubTask(s.ctx, b1, task(id, 1), refusing(failed)); !errors.Is(err, failed) {
			t.Error(err)
		}
		if list, err = s.one().Requests.SubTasks(s.ctx, b1, id, store.Page{}); err != nil || list.Total != 3 {
			t.Errorf("%v %d", err, list.Total)
		}
		s.balance(p, s1, 1000, 5)
	})
}
