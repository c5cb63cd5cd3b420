package auth

// SignIdentity signs an identity token (OpenID Connect Core 1.0, section 2). Texts that are empty are left out. It is never an API key, as
// it has an audience, and never an access token, as that says which plan it is for; its issuer is not one of ours for either.
func (a *Auth) SignIdentity(claims map[string]any, texts map[string]string) (string, error) {
	for name, text := range texts {
		if text != "" {
			claims[name] = text
		}
	}
	payload, err := encodeExact(claims)
	if err != nil {
		return "", err
	}
	return a.sign(payload)
}
