package pay

import (
	"context"
	"errors"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
)

const maxSubTasks = 1000

// RecordSubTask records a part of the work for a request of a plan of the caller; data.subTaskId names it. once may be nil. Errors:
// [toll.CodeBadRequest], [toll.CodeSubTaskRequestUnknown] also for requests of other builders, [toll.CodeSettleConflict] for an id
// that names open holds of several accounts, [toll.CodeRateLimited] when the request has 1,000 sub-tasks.
func (x *Requests) RecordSubTask(ctx context.Context, caller toll.Address, in *toll.SubTaskInput, once *store.Once) (*toll.ActResult, error) {
	t, err := in.SubTask()
	if err != nil {
		return nil, err
	}
	account, err := x.worksFor(ctx, caller, t.AgentRequestID)
	if err != nil {
		return nil, err
	}
	now := x.clock().UTC().Truncate(time.Microsecond)
	t.ID, t.CreatedAt = toll.NewUUID(), toll.At(now)
	out := &toll.ActResult{
		Success: true, Message: "The sub-task is recorded.", TxHash: toll.NewHash(), HTTPStatus: 200, When: t.CreatedAt,
		Data: map[string]any{"subTaskId": t.ID, "agentRequestId": t.AgentRequestID},
	}
	err = x.store.Tx(ctx, func(tx *store.Tx) error {
		n, err := store.CountSubTasks(ctx, tx, account, t.AgentRequestID, maxSubTasks)
		if err == nil && n >= maxSubTasks {
			err = toll.Errorf(toll.CodeRateLimited, "A request may have at most %d sub-tasks.", maxSubTasks).
				WithParam("quota", "sub-tasks of a request").WithParam("limit", maxSubTasks).WithHint("Combine several sub-tasks into one with the sum of their credits.")
		}
		if err != nil {
			return err
		}
		if err := store.InsertSubTask(ctx, tx, account, t); err != nil {
			return err
		}
		return store.PutAnswer(ctx, tx, once, out)
	})
	return out, checkout.Fault(err)
}

// SubTasks lists the recorded parts of a request for the owner of its plan. Errors: [toll.CodeSubTaskRequestUnknown], [toll.CodeBadPage].
func (x *Requests) SubTasks(ctx context.Context, caller toll.Address, requestID string, p store.Page) (store.List[*toll.SubTask], error) {
	account, err := x.worksFor(ctx, caller, requestID)
	if err != nil {
		return store.List[*toll.SubTask]{}, err
	}
	list, err := store.SubTasks(ctx, x.store, account, requestID, p)
	return list, checkout.Fault(err)
}

// worksFor returns the account of a request that the caller, the owner of its plan, works for. An id that this service issued
// counts from the verify on, which stores nothing without a hold; one that a caller chose, from the hold or settle on.
func (x *Requests) worksFor(ctx context.Context, caller toll.Address, id string) (ledger.AccountID, error) {
	account, ours := x.ledger.AccountOfRequestID(id)
	var err error
	if ours {
		_, err = x.allowed(ctx, ledger.Request{Account: account}, ownerOnly(caller))
	} else {
		var r *request
		if r, err = x.owned(ctx, caller, id); err == nil {
			account = r.Request.Account
		}
	}
	if errors.Is(err, noSettlement()) {
		err = toll.NewError(toll.CodeSubTaskRequestUnknown).WithHint("Send the agentRequestId that verify or settle returned.")
	}
	return account, err
}
