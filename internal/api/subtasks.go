package api

import (
	"net/url"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/store"
)

func subTaskRoutes() []route {
	const at = Base + "/protocol/agent-sub-tasks"
	return []route{
		{
			op: "recordSubTask", method: "POST", path: at, auth: owners, right: toll.RightSell, tag: "Sub-tasks",
			summary: "Record a part of the work for a request. Burns nothing", action: creates((*handler).recordSubTask),
			codes: []toll.Code{toll.CodeBadNumber, toll.CodeSubTaskRequestUnknown, toll.CodeSettleConflict},
		},
		{
			op: "listSubTasks", method: "GET", path: at, auth: owners, right: toll.RightRead, tag: "Sub-tasks", summary: "Recorded parts of the work for a request",
			action: lists((*handler).listSubTasks), codes: []toll.Code{toll.CodeBadRequest, toll.CodeBadPage, toll.CodeSubTaskRequestUnknown, toll.CodeSettleConflict},
			query: append([]query{{"agentRequestId", "The request. Required."}}, sortedBy(store.SortCreated)...),
		},
	}
}

func (h *handler) recordSubTask(c *call, in *toll.SubTaskInput, once *store.Once) (*toll.ActResult, error) {
	return h.Facilitator.RecordSubTask(c.context, c.caller.Address, in, once)
}

// SubTaskList is a list of sub-tasks.
type SubTaskList struct {
	SubTasks []*toll.SubTask `json:"subTasks"`
	Paging
}

func (h *handler) listSubTasks(c *call, p store.Page, q url.Values) (*SubTaskList, error) {
	id := q.Get("agentRequestId")
	if id == "" {
		return nil, toll.Faults([]toll.Fault{{Path: "agentRequestId", Message: "is required in the query"}})
	}
	list, err := h.Facilitator.SubTasks(c.context, c.caller.Address, id, p)
	return &SubTaskList{SubTasks: list.Items, Paging: pagingOf(p, list)}, err
}
