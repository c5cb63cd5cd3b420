package x402

const prefix = "svc"
