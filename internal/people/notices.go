package people

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// knownTime is how long a source from which a person signed in is known: as long as the audit log keeps sources.
const knownTime = 90 * 24 * time.Hour

// Notices sends mails for which their reader did not ask just now: events of a workspace, and sign-ins from a new network.
type Notices struct {
	store     *store.Store
	auth      *auth.Auth
	limits    *limits
	mailer    *mailer // nil: the service sends no mails
	publicURL string

	signIns chan signIn // for [Notices.reportSignIn]
	begun   jobs.Signal
}

func newNotices(d Deps, l *limits, m *mailer) *Notices {
	return &Notices{d.Store, d.Auth, l, m, d.PublicURL, make(chan signIn, mostMails), jobs.NewSignal()}
}

func (n *Notices) HasMail() bool { return n.mailer != nil }

// Loops returns the loops that send mails. A stop drops the queue: a person asks for another code.
func (n *Notices) Loops() []jobs.Loop {
	if n.mailer == nil {
		return nil
	}
	return []jobs.Loop{
		{Name: "people.mail", Wake: n.mailer.queued, Run: n.mailer.sendNext},
		{Name: "people.sign-ins", Wake: n.begun, Run: n.reportSignIn},
	}
}

// MailCredential returns the mail credential of a person. [store.ErrNotFound] when the person has not proved the address.
func (n *Notices) MailCredential(ctx context.Context, user toll.UUID, address string) (toll.UUID, error) {
	c, err := store.CredentialBySubject(ctx, n.store, Mail, strings.ToLower(address))
	if err == nil && c.UserID != user {
		err = store.ErrNotFound
	}
	return c.ID, err
}

// MailReader returns the address of a mail credential. [store.ErrNotFound] unless its person may read in the workspace now.
func (n *Notices) MailReader(ctx context.Context, workspace toll.Address, credential toll.UUID) (string, error) {
	c, err := store.CredentialByID(ctx, n.store, credential)
	if err != nil {
		return "", err
	}
	if _, err := readUser(ctx, n.store, c.UserID); err != nil {
		return "", err
	}
	role, err := n.auth.RoleOf(ctx, n.store, workspace, c.UserID)
	if err == nil && (c.Kind != Mail || !role.Rights().Has(toll.RightRead)) {
		err = store.ErrNotFound
	}
	return c.Subject, err
}

// TakeMail reports whether a notice may be sent to a credential: 20 at once, then one in three minutes, by this process.
func (n *Notices) TakeMail(credential toll.UUID) bool {
	return n.limits.notices.Take(credential, 1, time.Since(n.limits.began)).OK
}

// SendMail sends a mail and returns when the server has it. A mail that is sent again keeps its id. Errors name no address.
func (n *Notices) SendMail(ctx context.Context, id, to, subject, text string) error {
	if n.mailer == nil {
		return errors.New("the service no longer has a mail server")
	}
	return n.mailer.send(ctx, letter{id, to, subject, text})
}

type signIn struct {
	user          toll.UUID
	kind          string // of the credential, or [Recovery]
	source, agent string
	at            time.Time
}

// noteSignIn queues a sign-in for [Notices.reportSignIn]. It never waits: while the queue is full, sign-ins are not reported.
func (n *Notices) noteSignIn(ctx context.Context, user toll.UUID, kind string, at time.Time) {
	who := store.ActorOf(ctx)
	if n.mailer == nil || who.Source == "" {
		return
	}
	select {
	case n.signIns <- signIn{user, kind, who.Source, who.Agent, at}:
		n.begun.Fire()
	default:
		n.mailer.warn(ctx, errors.New("the sign-in notice queue is full"))
	}
}

// reportSignIn mails all addresses of a person about a sign-in from a network that is not in the audit log of the person.
func (n *Notices) reportSignIn(ctx context.Context) (time.Duration, error) {
	var s signIn
	select {
	case s = <-n.signIns:
	default:
		return 0, nil
	}
	known, err := n.knows(ctx, s)
	if err != nil || known {
		return jobs.AtOnce, err
	}
	all, err := store.CredentialsOf(ctx, n.store, s.user)
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.Kind == Mail && n.TakeMail(c.ID) {
			n.mailer.warn(ctx, n.mailer.send(ctx, letter{"", c.Subject, "New sign-in", n.signInText(s)}))
		}
	}
	return jobs.AtOnce, nil
}

// knows reports whether a person signed in before from the network of a sign-in.
func (n *Notices) knows(ctx context.Context, s signIn) (bool, error) {
	in, err := store.MembershipsOf(ctx, n.store, s.user)
	for _, m := range in {
		var from []string
		from, err = store.SourcesOf(ctx, n.store, m.Workspace, s.user, s.at.Add(-knownTime), s.at)
		if err != nil || slices.ContainsFunc(from, func(f string) bool { return networkOf(f) == networkOf(s.source) }) {
			return err == nil, err
		}
	}
	return false, err
}

// networkOf returns an address, of IPv6 without its last 64 bits, which its owner changes daily.
func networkOf(source string) string {
	a, err := netip.ParseAddr(source)
	if err != nil || !a.Is6() || a.Is4In6() {
		return source
	}
	prefix, _ := a.Prefix(64) // 64 bits fit
	return prefix.String()
}

// howTexts are the kinds of credentials as a mail names them.
var howTexts = map[string]string{
	Password: "with your password", Passkey: "with a passkey", Mail: "with a code by mail", OIDC: "with the sign-in provider",
	Wallet: "with a wallet", Recovery: "with a recovery code or link and a new password",
}

func (n *Notices) signInText(s signIn) string {
	return "There was a sign-in to your account at " + n.publicURL + " from a new network.\r\n\r\n" +
		"When: " + s.at.UTC().Format("2006-01-02 15:04 UTC") + "\r\n" +
		"How: " + howTexts[s.kind] + "\r\n" +
		"App: " + programOf(s.agent) + "\r\n" +
		"Address: " + s.source + "\r\n\r\n" +
		"If this was you, ignore this mail. If not, end the session and change your sign-in methods:\r\n" + n.publicURL + "/account/security\r\n"
}

// programOf names a program by words that it says of itself. Its own words are not in the mail: whoever signs in chooses them.
func programOf(agent string) string {
	first := func(words ...string) string {
		for i := 0; i < len(words); i += 2 {
			if strings.Contains(agent, words[i]) {
				return words[i+1]
			}
		}
		return ""
	}
	name := first("Edg", "Edge", "OPR/", "Opera", "Firefox/", "Firefox", "FxiOS/", "Firefox", "Chrome/", "Chrome", "CriOS/", "Chrome",
		"Safari/", "Safari", "toll", "the command line")
	if name == "" {
		return "unknown"
	}
	system := first("Android", "Android", "iPhone", "an iPhone", "iPad", "an iPad", "Windows", "Windows", "Mac OS", "macOS", "Linux", "Linux")
	if system == "" {
		return name
	}
	return name + " on " + system
}
