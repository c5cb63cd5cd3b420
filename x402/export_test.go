package x402

// ReadByHand reports whether an answer is read without the strict decoder.
func ReadByHand(data []byte, into any) bool { return readPlain(data, into) }

// DecodePaymentRequired takes the object, a JSON string that holds its JSON, or a JSON string that holds the base64 of
// its JSON. Errors: [toll.CodeBadRequest] and the codes of members, [toll.CodeBadX402Version].
func DecodePaymentRequired(raw []byte) (*PaymentRequired, error) {
	if err := checkDepth(raw); err != nil {
		return nil, err
	}
	p := new(PaymentRequired)
	f := requiredField{into: p}
	if err := decode(raw, &f); err != nil {
		return nil, err
	}
	return p, p.check()
}
