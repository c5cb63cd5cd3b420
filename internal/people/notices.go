package people

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/store"
)

// knownTime is how long a source from which a person signed in is known: as long as the audit log keeps sources.
const knownTime = 90 * 24 * time.Hour

// MailCredential returns the credential with which a person proved a mail address. [store.ErrNotFound] for an address that is not
// theirs, whoever else has it.
func (p *People) MailCredential(ctx context.Context, user toll.UUID, address string) (toll.UUID, error) {
	c, err := store.CredentialBySubject(ctx, p.Store, Mail, strings.ToLower(address))
	if err == nil && c.UserID != user {
		err = store.ErrNotFound
	}
	return c.ID, err
}

// MailReader returns the address of a mail credential whose person may read in a workspace now. [store.ErrNotFound] when the
// credential, the person or the membership is gone.
func (p *People) MailReader(ctx context.Context, workspace toll.Address, credential toll.UUID) (string, error) {
	c, err := store.CredentialByID(ctx, p.Store, credential)
	if err != nil {
		return "", err
	}
	if _, err := p.User(ctx, c.UserID); err != nil {
		return "", err
	}
	who, err := p.Caller(ctx, workspace, c.UserID)
	if err == nil && (c.Kind != Mail || !who.Rights.Has(toll.RightRead)) {
		err = store.ErrNotFound
	}
	return c.Subject, err
}

// TakeMail counts a mail to the address of a credential that its person did not ask for just now, and reports whether it may be sent:
// 20 at once, and then one in three minutes, by this process.
func (p *People) TakeMail(credential toll.UUID) bool {
	return p.limits.notices.Take(credential, 1, time.Since(p.limits.began)).OK
}

// SendMail sends a mail and returns when the server has it. A mail that is sent again keeps its id. Errors name no address.
func (p *People) SendMail(ctx context.Context, id, to, subject, text string) error {
	if p.mailer == nil {
		return errors.New("the service has no mail server any more")
	}
	return p.send(ctx, letter{id, to, subject, text})
}

// signIn is a sign-in of which its person may have to be told.
type signIn struct {
	user          toll.UUID
	kind          string // of the credential, or [Recovery]
	source, agent string
	at            time.Time
}

// noteSignIn remembers a sign-in until [People.tellSignIn] looks at it. It never waits: when too many are remembered, nobody is told.
func (p *People) noteSignIn(ctx context.Context, user toll.UUID, kind string, at time.Time) {
	who := store.ActorOf(ctx)
	if p.mailer == nil || who.Source == "" {
		return
	}
	select {
	case p.mailer.signIn <- signIn{user, kind, who.Source, who.Agent, at}:
		p.mailer.begun.Fire()
	default:
		p.warnMail(ctx, errors.New("too many sign-ins wait to be told"))
	}
}

// tellSignIn sends a mail to every mail address of a person who signed in from a network that the audit log does not know of this
// person. Signing up is no sign-in, so the first one is not told either.
func (p *People) tellSignIn(ctx context.Context) (time.Duration, error) {
	var s signIn
	select {
	case s = <-p.mailer.signIn:
	default:
		return 0, nil
	}
	known, err := p.knows(ctx, s)
	if err != nil || known {
		return jobs.AtOnce, err
	}
	all, err := store.CredentialsOf(ctx, p.Store, s.user)
	if err != nil {
		return 0, err
	}
	for _, c := range all {
		if c.Kind == Mail && p.TakeMail(c.ID) {
			p.warnMail(ctx, p.send(ctx, letter{"", c.Subject, "A new sign-in", p.signInText(s)}))
		}
	}
	return jobs.AtOnce, nil
}

// knows reports whether a person signed in before from the network of a sign-in.
func (p *People) knows(ctx context.Context, s signIn) (bool, error) {
	in, err := store.MembershipsOf(ctx, p.Store, s.user)
	for _, m := range in {
		var from []string
		from, err = store.SourcesOf(ctx, p.Store, m.Workspace, s.user, s.at.Add(-knownTime), s.at)
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
	Password: "with your password", Passkey: "with a passkey", Mail: "with a code by mail", OIDC: "with an account of a provider",
	Wallet: "with a wallet", Recovery: "with a recovery code or link, and a new password",
}

func (p *People) signInText(s signIn) string {
	return "Somebody signed in to your account at " + p.PublicURL + " from a network that is new for it.\r\n\r\n" +
		"When: " + s.at.UTC().Format("2006-01-02 15:04 UTC") + "\r\n" +
		"How: " + howTexts[s.kind] + "\r\n" +
		"In: " + programOf(s.agent) + "\r\n" +
		"From: " + s.source + "\r\n\r\n" +
		"If that was you, there is nothing to do. If not, end the session and change how you sign in:\r\n" + p.PublicURL + "/account/security\r\n"
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
		return "another program"
	}
	system := first("Android", "Android", "iPhone", "an iPhone", "iPad", "an iPad", "Windows", "Windows", "Mac OS", "macOS", "Linux", "Linux")
	if system == "" {
		return name
	}
	return name + " on " + system
}
