// Package operator has the pages for the operators of the service: its health, background work, keys, limits, backups, and workspaces.
package operator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/check"
	"github.com/tollhq/toll/internal/people"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/web/page"
)

// Operation is the state of a service, as its operators see it.
type Operation struct {
	Checks check.List
	Loops  []Loop
	Keys   []SigningKey
	Limits []Limit
	Unmatched
	Alarms  []Alarm
	Backups *Backups // nil: no schedule
}

// Backups are the backups that the service makes by itself. Failed is the time of the last try, when that failed.
type Backups struct {
	Dir      string
	Every    time.Duration
	Keep     int
	Now      time.Time // by the clock of the machine
	Files    []Backup  // the newest first
	Failed   time.Time
	Failure  string
	Verified VerifiedBackup // zero: none since this process started
}

// Backup is a file of the schedule.
type Backup struct {
	Name  string
	At    time.Time
	Bytes int64
}

// VerifiedBackup is a backup that was read and opened. Failure says why it could not be.
type VerifiedBackup struct {
	Name    string
	At      time.Time
	Bytes   int64 // of the database in it
	Failure string
}

// Loop is work in the background.
type Loop struct {
	Name    string
	Runs    uint64
	Last    time.Time // end of the last turn
	Failing time.Time // since when turns fail; zero: they do not
	Error   string    // of the last turn
}

// Alarm is one that the log of this process has: how often, and when for the last time.
type Alarm struct {
	ID    string
	Times int64
	Last  time.Time // by the clock of the machine
}

// SigningKey is a key with which the service signs.
type SigningKey struct {
	ID, For       string
	Made, Retired time.Time // Retired is zero for the one that signs
}

// Limit is a bound that the operator can set.
type Limit struct {
	Name, Text string
}

// Unmatched counts payments that no order explains, by rail.
type Unmatched struct{ Cards, Crypto int64 }

// Operator executes the actions of the operator pages.
type Operator interface {
	Operation(context.Context) (Operation, error)
	// VerifyBackup reads a whole backup by its name, and opens it.
	VerifyBackup(ctx context.Context, name string) (VerifiedBackup, error)
	MakeBackup() // soon, in the background
	// Workspaces lists all workspaces of the service.
	Workspaces(context.Context, page.Listing) (page.List[Workspace], error)
	// Suspend suspends or resumes a workspace, a plan, or an API key by its id. known is false for an id of none.
	Suspend(ctx context.Context, id string, suspend bool) (known bool, err error)
}

// Workspace is a workspace with its number of members and the holder of its private key.
type Workspace struct {
	toll.WorkspaceRecord
	Members int
	Custody toll.Custody
}

// pages has the services behind the pages.
type pages struct {
	service Operator
	people  *people.People
}

// Pages returns the pages, which operators open in any workspace.
func Pages(service Operator, persons *people.People) page.Set {
	w := pages{service, persons}
	return page.Set{Areas: []page.Area{
		{
			Path: "/operator", Title: "Service", Group: page.GroupOperate, Nav: "Service", Icon: "server",
			Right: toll.RightRead, Persons: true, Operators: true, Get: w.showOperation, Post: w.operate,
		},
		{
			Path: "/operator/accounts", Title: "Workspaces", Under: "/operator",
			Right: toll.RightRead, Persons: true, Operators: true, Get: w.listAccounts,
		},
	}}
}

// custodyWords names the holders of a wallet's key in the table of workspaces.
var custodyWords = map[toll.Custody]string{toll.CustodyService: "service", toll.CustodyShared: "service and owner (exported)", toll.CustodyExternal: "owner"}

func (w pages) listAccounts(c *page.Context) (page.View, error) {
	list, err := w.service.Workspaces(c.Ctx(), c.ListPage())
	if err != nil {
		return nil, c.Failed("list page", err)
	}
	t := &page.Table{
		Caption: "Workspaces", Pager: c.PagerOf(list.Total, list.Next, "workspace"),
		Head: []page.Column{{Text: "Name"}, {Text: "Address"}, {Text: "Members", Num: true}, {Text: "Wallet key held by"}, {Text: "Created"}},
	}
	for _, one := range list.Items {
		t.Rows = append(t.Rows, []page.Cell{
			{Text: page.NameOf(one.Name)}, {ID: one.Address.String()}, page.Credits(toll.Credits(one.Members)), {Text: custodyWords[one.Custody]}, {At: one.CreatedAt.Time},
		})
	}
	return c.Record("Workspaces", page.Record{Lead: "All workspaces of this service.", Table: t})
}

func (w pages) showOperation(c *page.Context) (page.View, error) {
	o, err := w.service.Operation(c.Ctx())
	if err != nil {
		return nil, c.Failed("page", err)
	}
	s := page.Record{Lead: "Health and background work of this service. The command toll doctor and the metrics show the same data."}
	s.Links = []page.Link{{Text: "Workspaces", To: c.To("operator", "accounts"), Plain: true}}
	checks := &page.Table{Caption: "Health", Head: []page.Column{{Text: "Check"}, {Text: "Status"}, {Text: "Detail"}}}
	for _, one := range o.Checks {
		tone := map[string]string{check.OK: "good", check.Warning: "warn", check.Failed: "bad"}[one.Status]
		checks.Rows = append(checks.Rows, []page.Cell{{Text: one.Name}, {State: &page.State{Text: one.Status, Tone: tone}}, {Sub: one.Detail}})
		if one.Status != check.OK {
			s.Tasks = append(s.Tasks, page.Task{Tone: tone, Title: one.Name, Text: one.Detail})
		}
	}
	if n := o.Cards + o.Crypto; n > 0 {
		s.Tasks = append(s.Tasks, page.Task{
			Tone: "bad", Title: page.Count(n, "payment") + " without an order",
			Text: "List the payments with toll orders unmatched. Then refund each payment or grant its credits.",
		})
	}
	for _, a := range o.Alarms {
		s.Tasks = append(s.Tasks, page.Task{
			Tone: "bad", Title: "Alarm " + a.ID,
			Text: "Raised " + page.Count(a.Times, "time") + ", last " + page.Ago(a.Last, c.Machine()) + ". The log has the details, and docs/OPERATING.md describes what to do.",
		})
	}
	loops := &page.Table{Caption: "Background work", Head: []page.Column{{Text: "Job"}, {Text: "Status"}, {Text: "Last run"}, {Text: "Runs", Num: true}}}
	for _, l := range o.Loops {
		row := []page.Cell{{Text: l.Name}, {State: &page.State{Text: map[bool]string{false: "not run yet", true: "healthy"}[l.Runs > 0], Tone: "good"}}, page.At(l.Last), page.Credits(toll.Credits(l.Runs))}
		if l.Error != "" {
			row[1] = page.Cell{State: &page.State{Text: "failing", Tone: "bad"}, Sub: plain.Name(l.Error)}
			s.Tasks = append(s.Tasks, page.Task{Tone: "bad", Title: l.Name + " is failing", Text: plain.Name(l.Error)})
		}
		loops.Rows = append(loops.Rows, row)
	}
	keys := &page.Table{Caption: "Signing keys", Head: []page.Column{{Text: "Key"}, {Text: "Use"}, {Text: "Status"}, {Text: "Created"}}}
	for _, k := range o.Keys {
		is := &page.State{Text: "active", Tone: "good"}
		if !k.Retired.IsZero() {
			is = &page.State{Text: "retired", Tone: "quiet"}
		}
		keys.Rows = append(keys.Rows, []page.Cell{{ID: k.ID}, {Text: k.For}, {State: is}, page.At(k.Made)})
	}
	for _, l := range o.Limits {
		s.Facts = append(s.Facts, page.Fact{Label: l.Name, Cell: page.Cell{Text: l.Text}})
	}
	s.Parts = []page.Part{{Title: "Health", Table: checks}, showBackups(c, o.Backups, &s), {Title: "Background work", Table: loops}, {Title: "Signing keys", Table: keys}}
	if o.Backups != nil {
		s.Acts = append(s.Acts, c.DialogOf("backup", "Back up now", "The backup runs in the background and then appears in the list. No backup is created if the newest backup is less than an hour old."))
	}
	what := page.Field{Name: "id", Label: "Workspace address, plan id, or API key id", Required: true}
	s.Acts = append(s.Acts, c.DialogOf("suspend", "Suspend access", "A suspended workspace or plan accepts no orders, top-ups, or holds. Open holds can still be settled, and refunds, exports, and sign-in still work. A suspended API key is rejected.", what),
		c.DialogOf("resume", "Resume access", "The workspace, plan, or API key works again within a second.", what))
	to, err := w.ownMails(c)
	if err != nil {
		return nil, c.Failed("page", err)
	}
	if len(to) > 0 {
		s.Acts = append(s.Acts, c.DialogOf("mail", "Send test mail", "Send a mail to yourself to check that the service can send mail.", page.Field{Name: "to", Label: "To", Options: to}))
	}
	return c.Record("Service", s)
}

// ownMails are the mail addresses that the visitor proved, where the service sends mails.
func (w pages) ownMails(c *page.Context) (out []page.Option, err error) {
	if !w.people.Notices.HasMail() {
		return nil, nil
	}
	all, err := w.people.Credentials.List(c.Ctx(), c.Person.User.ID)
	for _, credential := range all {
		if credential.Kind == people.Mail {
			out = append(out, page.Option{Value: credential.Name, Text: plain.Name(credential.Name)})
		}
	}
	return out, err
}

// keeps describes how many backups are kept.
func keeps(n int) string {
	if n < 0 {
		return "all are kept"
	}
	return "the newest " + strconv.Itoa(n) + " are kept"
}

// showBackups is the list of backups. What is wrong with them, and the schedule, goes to the page.
func showBackups(c *page.Context, b *Backups, s *page.Record) page.Part {
	t := &page.Table{
		Caption: "Backups", Head: []page.Column{{Text: "Created"}, {Text: "File"}, {Text: "Size", Num: true}, {Text: "Verified"}},
		Empty: &page.Empty{
			Icon: "server", Title: "No scheduled backups",
			Text: "To back up an embedded database on a schedule, start the service with a backup folder. Back up a PostgreSQL database with its own tools.", Command: "toll serve --backup-dir DIR",
		},
	}
	if b == nil {
		return page.Part{Title: "Backups", Table: t}
	}
	t.Empty.Title, t.Empty.Text, t.Empty.Command = "No backups yet", "The first backup is created within a minute after the service starts.", ""
	s.Facts = append(s.Facts, page.Fact{Label: "Backups", Cell: page.Cell{
		Text: "every " + strings.TrimPrefix(page.Span(toll.UnitsOf(int64(b.Every/time.Second))), "1 ") + "; " + keeps(b.Keep), Sub: "in " + b.Dir,
	}})
	last := page.Fact{Label: "Last backup", Cell: page.Cell{Text: "none"}}
	if len(b.Files) > 0 {
		last.Cell = page.Cell{At: b.Files[0].At}
	}
	s.Facts = append(s.Facts, last)
	wrong := func(title, text string) { s.Tasks = append(s.Tasks, page.Task{Tone: "bad", Title: title, Text: text}) }
	switch {
	case !b.Failed.IsZero():
		wrong("A backup failed", "The last attempt, "+page.Ago(b.Failed, b.Now)+", failed: "+plain.Name(b.Failure)+". The service retries every ten minutes.")
	case len(b.Files) > 0 && b.Now.Sub(b.Files[0].At) > 2*b.Every:
		wrong("Backups are overdue", "The newest backup was created on "+page.Date(b.Files[0].At)+". See the log for the reason.")
	}
	if b.Verified.Failure != "" {
		wrong("A backup cannot be read", b.Verified.Name+": "+plain.Name(b.Verified.Failure))
	}
	for _, f := range b.Files {
		read := page.Cell{Form: &page.Form{
			Action: c.R.URL.Path, Ticket: c.Ticket(c.R.URL.Path), Act: "verify", Button: "Verify", Hidden: []page.Option{{Value: "backup", Text: f.Name}},
		}}
		if b.Verified.Name == f.Name && b.Verified.Failure == "" {
			read.Text, read.Sub = "intact", "verified "+page.Ago(b.Verified.At, b.Now)
		}
		t.Rows = append(t.Rows, []page.Cell{{At: f.At}, {Text: f.Name}, {Text: mebibytes(f.Bytes), Num: true}, read})
	}
	return page.Part{Title: "Backups", Table: t}
}

func mebibytes(n int64) string {
	return page.Grouped(strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64)) + " MiB"
}

func (w pages) operate(c *page.Context) (page.View, error) {
	return c.Finish(func() (page.Outcome, error) {
		out := page.Outcome{To: c.To("operator")}
		switch c.Form.Get("act") {
		case "backup":
			w.service.MakeBackup()
			out.Done = "The backup starts if the newest backup is at least an hour old. Reload this page to see the new backup."
			return out, nil
		case "mail":
			out.Done = "The mail server accepted the mail."
			return out, w.testMail(c)
		case "suspend", "resume":
			suspends := c.Form.Get("act") == "suspend"
			known, err := w.service.Suspend(c.Ctx(), c.Text("id"), suspends)
			if err == nil && !known {
				err = page.OneFault("id", "is unknown")
			}
			if out.Done = "Suspended."; !suspends {
				out.Done = "Resumed."
			}
			return out, err
		case "verify":
		default:
			return out, toll.NewError(toll.CodeBadRequest)
		}
		read, err := w.service.VerifyBackup(c.Ctx(), c.Form.Get("backup"))
		if err != nil {
			return page.Outcome{}, err
		}
		out.Done = "The backup is intact. It contains a database of " + mebibytes(read.Bytes) + "."
		if read.Failure != "" {
			out.Done = "The backup cannot be read: " + plain.Name(read.Failure) + "."
		}
		return out, nil
	})
}

// testMail sends a mail to an address of the visitor.
func (w pages) testMail(c *page.Context) error {
	to, err := w.ownMails(c)
	if err != nil {
		return err
	}
	if !page.HasOption(to, c.Form.Get("to")) {
		return page.OneFault("to", "must be one of your mail addresses")
	}
	name := c.Name
	err = w.people.Notices.SendMail(c.Ctx(), toll.NewUUID(), c.Form.Get("to"), "Test mail from "+name, name+" at "+c.PublicURL+" can send mail.\n")
	if err != nil {
		return toll.Errorf(toll.CodeBadRequest, "The mail was not sent: %s.", plain.Name(err.Error()))
	}
	return nil
}
