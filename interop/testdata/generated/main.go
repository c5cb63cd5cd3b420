// Command generated lists the plans of a workspace with the client that oapi-codegen generates.
//
//	generated URL KEY
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"example.com/generated/tollapi"
)

func main() {
	c, err := tollapi.NewClientWithResponses(os.Args[1], tollapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	}))
	if err != nil {
		panic(err)
	}
	res, err := c.ListPlansWithResponse(context.Background(), nil)
	if err != nil || res.JSON200 == nil {
		panic(fmt.Sprintf("%v %v", err, res))
	}
	for _, p := range res.JSON200.Plans {
		fmt.Println(p.PlanId)
	}
}
