package people

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	netmail "net/mail"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	mail "github.com/wneessen/go-mail"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/store"
)

const (
	codeDigits = 8
	// codeLife is how long a code can be typed, and codeTries how often a wrong one is taken.
	codeLife  = 10 * time.Minute
	codeTries = 5
	// mostCodes bounds the codes of one address that have not ended, and mostDaily those within a day that were not used, in all
	// processes. A guess succeeds once in 10^8 tries.
	mostCodes = 5
	mostDaily = 10
	mailDay   = 24 * time.Hour
	// mostMails bounds the mails that wait to be sent, and sendTime the time of one.
	mostMails = 100
	sendTime  = 30 * time.Second
	maxFault  = 300 // characters of an error that hold text of a server
)

// MailConfig says through which server mails are sent. The zero value sends none.
type MailConfig struct {
	// URL is smtp://[user@]host[:587], which must offer STARTTLS unless it is on this machine, or smtps://[user@]host[:465].
	URL string
	// Password is that of the user, "" for none.
	Password string
	// From is the address that sends, such as "Example <pay@example.com>".
	From string
}

type mailer struct {
	client *mail.Client
	from   string
	host   string // of the address in from
	queue  chan letter
	queued jobs.Signal
	log    *slog.Logger
}

// letter is a mail. Its id, which may be "", is the same when it is sent again, so that programs of readers can tell.
type letter struct{ id, to, subject, text string }

// Check refuses settings that are wrong. No error has the password in it.
func (c MailConfig) Check() error {
	_, err := newMailer(c, nil)
	return err
}

// Reach connects and signs in to the server before ctx ends. It sends no mail. nil for the zero value. Errors hide the password.
func (c MailConfig) Reach(ctx context.Context) error {
	m, err := newMailer(c, nil, mail.WithTimeout(providerTime))
	if m == nil || err != nil {
		return err
	}
	dialed := make(chan error, 1)
	go func() { // the library ends the dial with ctx, and each of the two steps after it within providerTime
		err := m.client.DialWithContext(ctx)
		if err == nil {
			_ = m.client.Close() // the server has accepted the sign-in
		}
		dialed <- err
	}()
	select {
	case err = <-dialed:
	case <-ctx.Done():
		err = fmt.Errorf("timeout: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("the mail server cannot be used: %s: check the server, TOLL_SMTP_URL (--smtp-url), and TOLL_SMTP_PASSWORD", plain.Text(err.Error(), maxFault))
	}
	return nil
}

// newMailer returns nil for the zero value. It connects to nothing. Options in more win.
func newMailer(c MailConfig, log *slog.Logger, more ...mail.Option) (*mailer, error) {
	if c == (MailConfig{}) {
		return nil, nil
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "smtp" && u.Scheme != "smtps" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("the mail server must be smtp://user@host:587 or smtps://user@host:465: fix TOLL_SMTP_URL (--smtp-url)")
	}
	if _, has := u.User.Password(); has {
		return nil, errors.New("the password of the mail server must not be in TOLL_SMTP_URL (--smtp-url): set TOLL_SMTP_PASSWORD")
	}
	from, err := netmail.ParseAddress(c.From)
	if err != nil {
		return nil, errors.New("mail needs a sender address, such as pay@example.com: fix TOLL_MAIL_FROM (--mail-from)")
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), map[string]string{"smtp": "587", "smtps": "465"}[u.Scheme]))
	if err != nil {
		return nil, err
	}
	options := []mail.Option{mail.WithPort(port), mail.WithTimeout(sendTime), mail.WithTLSPolicy(mail.TLSMandatory)}
	switch {
	case u.Scheme == "smtps":
		options = append(options, mail.WithSSL())
	case toll.IsLoopback(u.Hostname()):
		options = append(options, mail.WithTLSPolicy(mail.TLSOpportunistic))
	}
	if name := u.User.Username(); name != "" {
		options = append(options, mail.WithSMTPAuth(mail.SMTPAuthAutoDiscover), mail.WithUsername(name), mail.WithPassword(c.Password))
	}
	client, err := mail.NewClient(u.Hostname(), append(options, more...)...)
	return &mailer{
		client: client, from: c.From, host: from.Address[strings.LastIndexByte(from.Address, '@')+1:],
		queue: make(chan letter, mostMails), queued: jobs.NewSignal(), log: log,
	}, err
}

// sendNext sends one mail of the queue. A failure is logged and not repeated: the code in the mail expires soon.
func (m *mailer) sendNext(ctx context.Context) (time.Duration, error) {
	select {
	case l := <-m.queue:
		m.warn(ctx, m.send(ctx, l))
		return jobs.AtOnce, nil
	default:
		return 0, nil
	}
}

func (m *mailer) warn(ctx context.Context, err error) {
	if err != nil {
		m.log.WarnContext(ctx, "cannot send mail", slog.Any("err", err))
	}
}

// send hands a mail to the server. Its errors name no address.
func (m *mailer) send(ctx context.Context, l letter) error {
	msg := mail.NewMsg()
	err := errors.Join(msg.From(m.from), msg.To(l.to))
	if err == nil {
		msg.Subject(l.subject)
		msg.SetBodyString(mail.TypeTextPlain, l.text)
		msg.SetGenHeader("Auto-Submitted", "auto-generated")
		if l.id != "" {
			msg.SetMessageIDWithValue(l.id + "@" + m.host)
		}
		ctx, cancel := context.WithTimeout(ctx, sendTime)
		defer cancel()
		err = m.client.DialAndSendWithContext(ctx, msg)
	}
	if refused, ok := errors.AsType[*mail.SendError](err); ok {
		err = fmt.Errorf("%s, code %d", refused.Reason, refused.ErrorCode()) // the whole text names the address
	}
	return err
}

// Codes sends codes to mail addresses and checks them.
type Codes struct {
	store     *store.Store
	states    *states
	limits    *limits
	signUps   *SignUps
	mailer    *mailer // nil: the service sends no mails
	publicURL string
}

// CodeFor says for what a code by mail is.
type CodeFor struct {
	Mail string    `json:"mail"`
	Next string    `json:"next"` // page that comes then
	Link string    `json:"link"` // secret of a link that lets a new person in
	User toll.UUID `json:"user"` // who adds the address to their credentials; zero: a sign-in
}

// codeState is what the page keeps of a code, sealed.
type codeState struct {
	CodeFor
	ID   []byte    `json:"id"`
	Ends time.Time `json:"ends"`
}

var (
	mailSyntax = regexp.MustCompile("^[a-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-z0-9]([a-z0-9.-]{0,183}[a-z0-9])?$")
	errMail    = toll.Errorf(toll.CodeBadRequest, "This is not a valid mail address.")
	errCode    = toll.Errorf(toll.CodeNotAuthenticated, "The code is wrong, already used, or expired.").WithHint("Request a new code.")
)

func codeHash(id []byte, code string) []byte {
	sum := sha256.Sum256(append(append([]byte("mail code "), id...), code...))
	return sum[:]
}

// Send mails a code to an address and returns the state for its check. The answer does not tell whether a person has the address; an
// unknown address gets a mail only if its owner may sign up. Errors are safe to show: [toll.CodeBadRequest], [toll.CodeRateLimited].
func (cd *Codes) Send(ctx context.Context, source string, to CodeFor) (state string, err error) {
	to.Mail = strings.ToLower(strings.TrimSpace(to.Mail))
	if cd.mailer == nil || !mailSyntax.MatchString(to.Mail) {
		return "", errMail
	}
	owner, may, err := cd.mayGet(ctx, to)
	if err != nil {
		return "", err
	}
	_, err = cd.limits.take(ctx, source, owner, bucket{cd.limits.senders, source}, bucket{cd.limits.mails, to.Mail}, bucket{cd.limits.allMail, ""})
	if err != nil {
		return "", err
	}
	n, err := rand.Int(rand.Reader, big.NewInt(100_000_000))
	if err != nil {
		return "", err
	}
	code := fmt.Sprintf("%0*d", codeDigits, n)
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails since Go 1.24
	now := cd.states.clock()
	s := codeState{to, id, now.Add(codeLife)}
	row := store.MailCode{ID: sumOf(string(id)), Code: codeHash(id, code), EndsAt: s.Ends}
	sends := false
	err = cd.store.Tx(ctx, func(tx *store.Tx) error {
		row.Mail = sumOf(to.Mail)
		left := codesLeft(ctx, tx, row.Mail, now)
		stopped, err := store.HasMailStop(ctx, tx, row.Mail)
		if sends = may && !stopped; err == nil && (stopped || errors.Is(left, toll.NewError(toll.CodeRateLimited))) {
			var own string
			if own, err = cd.limits.earlier(ctx, tx, source, owner); own != "" { // codes for the person count apart from those for strangers
				sends, row.Mail = may, sumOf("known "+to.Mail)
				left = codesLeft(ctx, tx, row.Mail, now)
			}
		}
		if err := cmp.Or(err, left); err != nil {
			return err
		}
		return store.InsertMailCode(ctx, tx, row)
	})
	if err != nil {
		return "", err
	}
	stop, err := cd.states.seal(mailStop{to.Mail}, "people mail stop")
	if err != nil {
		return "", err
	}
	if sends {
		l := letter{"", to.Mail, "Your code " + code[:4] + " " + code[4:], "Your code for " + cd.publicURL + " is\r\n\r\n    " + code[:4] + " " + code[4:] +
			"\r\n\r\nEnter it there within 10 minutes. It works once. Do not share it. The operator of the service never requests it.\r\n" +
			"If you did not request this code, ignore this mail. Nothing happens unless the code is entered.\r\n\r\n" +
			"To stop all codes to this address, open " + cd.publicURL + PathMailStop + "?" + url.Values{"state": {stop}}.Encode() + "\r\n"}
		select {
		case cd.mailer.queue <- l:
			cd.mailer.queued.Fire()
		default:
			return "", toll.Errorf(toll.CodeRateLimited, "Too many mails are waiting to be sent. Try again in a minute, or sign in another way.")
		}
	}
	return cd.states.seal(s, "people mail code")
}

// codesLeft returns nil while one more code may be sent for an address or, with another hash, for a person of it.
func codesLeft(ctx context.Context, tx *store.Tx, mail []byte, now time.Time) error {
	sent, err := store.MailCodesOf(ctx, tx, mail, now.Add(codeLife-mailDay))
	open := 0
	for _, c := range sent {
		if c.EndsAt.After(now) {
			open++
		}
	}
	switch {
	case err != nil:
		return err
	case len(sent) >= mostDaily:
		return toll.Errorf(toll.CodeRateLimited, "Ten codes were sent to this address within a day. Sign in another way, or try again tomorrow.")
	case open >= mostCodes:
		return toll.Errorf(toll.CodeRateLimited, "Several codes were sent to this address. Use the code that you received, or wait a few minutes.")
	}
	return nil
}

// mayGet returns the person of an address, zero for none, and reports whether its owner could use a code.
func (cd *Codes) mayGet(ctx context.Context, to CodeFor) (owner toll.UUID, may bool, err error) {
	c, err := store.CredentialBySubject(ctx, cd.store, Mail, to.Mail)
	if err == nil || !errors.Is(err, store.ErrNotFound) {
		return c.UserID, err == nil, err
	}
	if !to.User.IsZero() {
		return owner, true, nil
	}
	err = cd.signUps.MaySignUp(ctx, to.Link)
	if e := toll.AsError(err); err != nil && e.HTTPStatus() >= 500 {
		return owner, false, err
	}
	return owner, err == nil, nil
}

// PathMailStop is the page on which the owner of a mail address stops codes to it.
const PathMailStop = "/sign-in/mail/stop"

// mailStop is what the link in a mail says, sealed. It does not end.
type mailStop struct {
	Mail string `json:"mail"`
}

// Stopped returns the address of the link in a mail, and whether codes to it are stopped. The error is safe to show.
func (cd *Codes) Stopped(ctx context.Context, state string) (address string, stopped bool, err error) {
	var s mailStop
	if len(state) > 1024 || !cd.states.open(state, "people mail stop", &s) {
		return "", false, toll.Errorf(toll.CodeBadRequest, "This service did not send this link.")
	}
	stopped, err = store.HasMailStop(ctx, cd.store, sumOf(s.Mail))
	return s.Mail, stopped, err
}

// Stop stops codes to the address of the link in a mail, or allows them. A person of the address still gets codes in a browser or a
// network of an earlier sign-in. The error is safe to show.
func (cd *Codes) Stop(ctx context.Context, state string, stop bool) error {
	address, _, err := cd.Stopped(ctx, state)
	if err != nil {
		return err
	}
	return cd.store.Tx(ctx, func(tx *store.Tx) error {
		if !stop {
			return store.DeleteMailStop(ctx, tx, sumOf(address))
		}
		return store.PutMailStop(ctx, tx, sumOf(address), cd.states.clock())
	})
}

// Read returns what a code is for, without trying one. The error is safe to show.
func (cd *Codes) Read(state string) (CodeFor, error) {
	s, err := cd.open(state)
	return s.CodeFor, err
}

func (cd *Codes) open(state string) (s codeState, err error) {
	if !cd.states.open(state, "people mail code", &s) || !cd.states.clock().Before(s.Ends) {
		return s, errCode
	}
	return s, nil
}

// Check uses a code up and returns its purpose and the address as a proof. Errors are safe to show: [toll.CodeNotAuthenticated], also
// after five wrong codes, [toll.CodeRateLimited].
func (cd *Codes) Check(ctx context.Context, source, state, code string) (CodeFor, Proof, error) {
	s, err := cd.open(state)
	if err != nil {
		return s.CodeFor, Proof{}, err
	}
	c, err := store.CredentialBySubject(ctx, cd.store, Mail, s.Mail)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return s.CodeFor, Proof{}, err
	}
	give, err := cd.limits.try(ctx, source, "", c.UserID) // each code counts its own tries, in all processes
	if err != nil {
		return s.CodeFor, Proof{}, err
	}
	code = strings.NewReplacer(" ", "", "-", "", "\u00a0", "").Replace(code)
	right := false
	err = cd.store.Tx(ctx, func(tx *store.Tx) error {
		right = false
		row, err := store.LockMailCode(ctx, tx, sumOf(string(s.ID)))
		if err != nil || row.Tries >= codeTries {
			return store.NotFoundAs(err, nil)
		}
		if right = subtle.ConstantTimeCompare(row.Code, codeHash(s.ID, code)) == 1; right {
			return store.DeleteMailCode(ctx, tx, row.ID)
		}
		row.Tries++
		return store.UpdateMailCode(ctx, tx, row)
	})
	switch {
	case err == nil && right:
		give()
	case err == nil:
		err = errCode
	}
	return s.CodeFor, Proof{Kind: Mail, Subject: s.Mail, Name: s.Mail}, err
}
