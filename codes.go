package toll

// Codes of errors: the wire code, the HTTP status, the category, the message (one sentence, safe to show), and the hint
// (the next step for the caller). Treat them as constants. A code never changes its meaning. Codes from .0900 up are
// defined by this project; the remaining codes keep the meaning that deployed clients know (wire contract, section 3). No
// code has status 422: the contract answers an invalid body with 400 (decision 6).
var (
	CodeNotAuthenticated = newCode("BCK.AUTH.0002", 401, CategoryAuth, "The API key is missing, unknown, expired, or revoked.",
		"Send Authorization: Bearer with a valid API key of this service. If your key has expired, create another with POST /api/v1/api-keys.")
	CodeForbidden = newCode("BCK.AUTH.0003", 403, CategoryAuth, "You are not allowed to do this.",
		"Use an API key of the workspace that owns the record.")
	CodeBadAuthorization = newCode("BCK.AUTH.0012", 401, CategoryAuth, "The Authorization header must have the form Bearer <key>.",
		"Send one Authorization header: Bearer, one space, and the API key with its prefix.")
	CodeWrongWorkspace = newCode("BCK.AUTH.0906", 403, CategoryAuth, "X-Current-Org-Id does not match the workspace of the API key.",
		"Send the id that GET /api/v1/organizations returns, or omit the header.")
	CodeRightMissing = newCode("BCK.AUTH.0907", 403, CategoryAuth, "The API key lacks the right that this call requires.",
		"params.right names the right. Use an API key that has it; GET /api/v1/api-keys lists the rights of each key.")
	CodeKeyNotFound = newCode("BCK.APIKEY.0002", 404, CategoryAuth, "You have no API key with this id.",
		"List your API keys with GET /api/v1/api-keys.")
	CodeKeyAlreadyRevoked = newCode("BCK.APIKEY.0003", 404, CategoryBusiness, "This API key is already revoked.",
		"No action is needed: the key no longer works.")
	CodeKeyForeign = newCode("BCK.APIKEY.0004", 401, CategoryAuth, "This is not an API key of this service.",
		"Use an API key that this service issued. Send an access token in the body or in the payment-signature header instead.")
	CodeKeyExpiryPast = newCode("BCK.APIKEY.0010", 400, CategoryValidation, "The expiry of an API key must be in the future.",
		"Send an expiresAt in the future, or expiresInSecs.")
	CodeKeyMalformed = newCode("BCK.APIKEY.0013", 401, CategoryAuth, "The API key is not complete.",
		"Copy the whole key, including its prefix.")
	CodeKeyNothingToUpdate = newCode("BCK.APIKEY.0016", 400, CategoryValidation, "The request contains no member that can be updated.",
		"Send name, version, or both.")
	CodeKeyWrongEnvironment = newCode("BCK.APIKEY.0901", 401, CategoryAuth, "The API key belongs to another environment.",
		"Use a key of this environment, or call the service that issued the key.")
	CodeVersionUnknown = newCode("BCK.VERSION.0001", 400, CategoryValidation, "The API version is unknown or out of range.",
		"Send a version that GET /api/v1/meta/versions lists, or omit it.")
	CodeVersionGateFailed = newCode("BCK.VERSION.0002", 500, CategoryInternal, "The body could not be converted between API versions.",
		"Use the current API version, and report the correlation id to the operator.")
	CodeBadUUID = newCode("BCK.COMMON.0025", 400, CategoryValidation, "The UUID is malformed.",
		"Send the id exactly as the API returned it: 8-4-4-4-12 hexadecimal digits.")
	CodeBadID = newCode("BCK.COMMON.0026", 400, CategoryValidation, "The id must be a decimal uint256 above zero.",
		"Send the id exactly as the API returned it: a string of decimal digits.")
	CodeExists = newCode("BCK.COMMON.0027", 409, CategoryBusiness, "This already exists.",
		"Use the existing record, or choose another name.")
	CodeDatabaseUnavailable = retryableCode("BCK.COMMON.0029", 503, CategoryIntegration, "The database is unavailable.",
		"Retry after the number of seconds in Retry-After.")
	CodeQueryTooLong = newCode("BCK.COMMON.0034", 400, CategoryValidation, "A query parameter is too long.",
		"Shorten the parameter to at most 4,096 bytes.")
	CodeIdempotencyMismatch = newCode("BCK.COMMON.0901", 409, CategoryBusiness, "This Idempotency-Key was already used with a different body.",
		"Use a new Idempotency-Key for a different body.")
	CodeIdempotencyRunning = retryableCode("BCK.COMMON.0902", 409, CategoryBusiness, "A call with this Idempotency-Key is still running.",
		"Retry the same call with the same Idempotency-Key in a moment.")
	CodeBadAddress = newCode("BCK.COMMON.0903", 400, CategoryValidation, "An address must be 0x followed by 40 hexadecimal digits.",
		"Send 0x and 40 hexadecimal digits, in upper or lower case.")
	CodeBadPage = newCode("BCK.COMMON.0904", 400, CategoryValidation, "A paging or sorting parameter is malformed or out of range.",
		"page starts at 1; pageSize is 1 to 100; sortBy is a field that GET /docs names for the list; sortOrder is asc or desc; cursor is the nextCursor of an earlier response.")
	CodeMintNotPositive = newCode("BCK.CREDITS.0001", 400, CategoryBusiness, "The amount to mint must be positive.",
		"Send an amount of at least 1.")
	CodeInsufficientCredits = newCode("BCK.CREDITS.0003", 402, CategoryBusiness, "There are not enough credits, and an automatic top-up is not possible.",
		"Order the plan again, or create an access token with a delegation that can buy credits.")
	CodeCreditsOverflow = newCode("BCK.CREDITS.0901", 400, CategoryValidation, "The balance would exceed 2^63-1 credits.",
		"Mint or order fewer credits: a balance holds at most 9223372036854775807.")
	CodeCreditsNotFree = newCode("BCK.CREDITS.0902", 409, CategoryBusiness, "The amount exceeds the credits that you can take back from the holder.",
		"params.available is the number of credits that you can take back now. To take back credits of a paid order, refund the order. When a hold ends, its credits become available or are burned.")
	CodePlanNotFound = newCode("BCK.PROTOCOL.0003", 404, CategoryBusiness, "No plan has this id.",
		"Check the id and the environment of your key.")
	CodeAgentNotFound = newCode("BCK.PROTOCOL.0004", 404, CategoryBusiness, "No agent has this id.",
		"Check the id and the environment of your key.")
	CodeOrderLacksMoney = newCode("BCK.PROTOCOL.0011", 402, CategoryBusiness, "The payer does not have enough money for this order.",
		"Add funds to the payment method, then order again.")
	CodeNotAgentOwner = newCode("BCK.PROTOCOL.0016", 403, CategoryBusiness, "You do not own this agent.",
		"Use an API key of the workspace that owns the agent; GET /api/v1/protocol/agents lists your agents.")
	CodeNotPlanOwner = newCode("BCK.PROTOCOL.0017", 403, CategoryBusiness, "You do not own this plan.",
		"Use an API key of the workspace that owns the plan; GET /api/v1/protocol/plans lists your plans.")
	CodeAgentListedAlready = newCode("BCK.PROTOCOL.0018", 200, CategoryBusiness, "The agent already has the requested status (listed or unlisted).",
		"")
	CodePlanListedAlready = newCode("BCK.PROTOCOL.0019", 200, CategoryBusiness, "The plan already has the requested status (listed or unlisted).",
		"")
	CodePlansOfUnknownAgent = newCode("BCK.PROTOCOL.0023", 404, CategoryBusiness, "No agent has this id, so there are no plans to list.",
		"Check the id and the environment of your key.")
	CodeAgentsOfUnknownPlan = newCode("BCK.PROTOCOL.0024", 404, CategoryBusiness, "No plan has this id, so there are no agents to list.",
		"Check the id and the environment of your key.")
	CodePlanNotAttached = newCode("BCK.PROTOCOL.0026", 403, CategoryBusiness, "The plan is not attached to this agent.",
		"List the plans of the agent with GET /api/v1/protocol/agents/{agentId}/plans.")
	CodeEndpointMismatch = newCode("BCK.PROTOCOL.0031", 403, CategoryBusiness, "The url and verb do not match any endpoint of the agent.",
		"Add the endpoint to the agent, or send the url and verb of an existing endpoint.")
	CodeSubTaskRequestUnknown = newCode("BCK.PROTOCOL.0037", 404, CategoryBusiness, "No request has this agentRequestId.",
		"Send an agentRequestId that verify or settle returned.")
	CodeAmountAndMargin = newCode("BCK.PROTOCOL.0042", 403, CategoryValidation, "maxAmount and marginPercent cannot be combined.",
		"Send maxAmount or marginPercent, not both.")
	CodeMarginOnFixedPlan = newCode("BCK.PROTOCOL.0043", 403, CategoryBusiness, "marginPercent requires a plan with dynamic credits per request.",
		"Send maxAmount, or use a plan with dynamic credits per request.")
	CodeMarginWithoutSubTasks = newCode("BCK.PROTOCOL.0044", 404, CategoryBusiness, "marginPercent requires recorded sub-task costs, and this request has none.",
		"Record the sub-tasks first with POST /api/v1/protocol/agent-sub-tasks.")
	CodeFiatPriceTooHigh = newCode("BCK.PROTOCOL.0046", 400, CategoryValidation, "A fiat price must be at most 999,999.99.",
		"Lower the price. Amounts have 6 decimals: 999,999.99 is 999999990000.")
	CodeFiatPriceTooLow = newCode("BCK.PROTOCOL.0047", 400, CategoryValidation, "A fiat price must be at least 1.00.",
		"Raise the price. Amounts have 6 decimals: 1.00 is 1000000.")
	CodeFiatPlanOnCryptoRoute = newCode("BCK.PROTOCOL.0050", 400, CategoryBusiness, "Ordering a fiat plan requires a checkout or a card delegation.",
		"Use POST /api/v1/protocol/plans/{planId}/checkout, or send the delegationId of a card delegation.")
	CodeWrongNetwork = newCode("BCK.PROTOCOL.0052", 400, CategoryValidation, "The network does not match this environment.",
		"Send the network that GET / returns, or omit it.")
	CodeTrialUsed = newCode("BCK.PROTOCOL.0056", 409, CategoryBusiness, "This address has already ordered this trial plan.",
		"Order a plan that is not a trial.")
	CodeBadNumber = newCode("BCK.PROTOCOL.0057", 400, CategoryValidation, "A number is invalid or out of range.",
		"Send a whole number within the range of the member, as a JSON integer or a string of digits.")
	CodePlanSoldOut = newCode("BCK.PROTOCOL.0901", 409, CategoryBusiness, "The plan has reached its maximum number of orders.",
		"Choose another plan, or ask the builder to raise maxOrders.")
	CodePlanUnlisted = newCode("BCK.PROTOCOL.0902", 409, CategoryBusiness, "The plan is unlisted and accepts no new orders.",
		"Choose a listed plan. Credits that you already have still work.")
	CodeBadCreditsConfig = newCode("BCK.PROTOCOL.0904", 400, CategoryValidation, "The credits configuration is contradictory.",
		"Correct the member named in params.path.")
	CodeBadPriceConfig = newCode("BCK.PROTOCOL.0905", 400, CategoryValidation, "The price configuration is contradictory.",
		"Correct the member named in params.path.")
	CodeNonceConflict = newCode("BCK.PROTOCOL.0906", 409, CategoryBusiness, "This registration nonce was already used with a different body.",
		"Use another nonce, or send the original body.")
	CodeOrderNotFound = newCode("BCK.PROTOCOL.0908", 404, CategoryBusiness, "No order has this id.",
		"Use the orderId from the response to the order, with an API key of the subscriber or of the plan's owner.")
	CodePlanTermsFixed = newCode("BCK.PROTOCOL.0909", 409, CategoryBusiness, "The price and credits of a registered plan cannot be changed.",
		"Omit the member named in params.path. For new terms, register another plan.")
	CodeRecordChanged = newCode("BCK.PROTOCOL.0910", 409, CategoryBusiness, "The record no longer has the version that you sent.",
		"Read the record again, then repeat your change with its current version.")
	CodePaymentAgentNotFound = newCode("BCK.X402.0001", 404, CategoryBusiness, "The agent named in the payment does not exist.",
		"Check extra.agentId in the payment requirements.")
	CodePaymentPlanNotFound = newCode("BCK.X402.0002", 404, CategoryBusiness, "The plan named in the payment does not exist.",
		"Check planId in the payment requirements and the environment of your key.")
	CodeAgentMismatch = newCode("BCK.X402.0003", 400, CategoryBusiness, "The plan is not attached to the agent, or the access token is for another agent.",
		"Attach the plan to the agent, or create an access token for this agent.")
	CodeTokenSignature = newCode("BCK.X402.0005", 402, CategoryAuth, "The access token is invalid: its signature, issuer, audience, or contents cannot be verified.",
		"Create a new access token with POST /api/v1/x402/permissions.")
	CodeTopUpRefused = newCode("BCK.X402.0008", 402, CategoryBusiness, "The automatic top-up failed because the payment was refused.",
		"Add funds or use another delegation, then retry.")
	CodeTokenUndecodable = newCode("BCK.X402.0010", 400, CategoryValidation, "The access token has an unknown format.",
		"Send the accessToken exactly as POST /api/v1/x402/permissions returned it.")
	CodeBadRequirements = newCode("BCK.X402.0012", 400, CategoryBusiness, "The payment requirements are invalid.",
		"Set resource.url to an absolute URL, and send only payment options in accepts that this service offers.")
	CodePlanMismatch = newCode("BCK.X402.0013", 400, CategoryBusiness, "The access token does not match any entry of accepts.",
		"Create an access token for a plan, scheme, and network listed in accepts.")
	CodeDelegationPlanMismatch = newCode("BCK.X402.0014", 400, CategoryBusiness, "The delegation is bound to another plan.",
		"Use a delegation for this plan, or a delegation that is not bound to a plan.")
	CodePermissionNotFound = newCode("BCK.X402.0015", 404, CategoryBusiness, "You have no permission with this hash.",
		"List your permissions with GET /api/v1/x402/permissions.")
	CodePermissionAlreadyRevoked = newCode("BCK.X402.0016", 400, CategoryBusiness, "The permission is already revoked.",
		"No action is needed: the access token no longer works.")
	CodeDelegationNotFound = newCode("BCK.X402.0019", 402, CategoryBusiness, "The delegation does not exist.",
		"Create a delegation, then use it to order or to create an access token.")
	CodeDelegationRevoked = newCode("BCK.X402.0020", 402, CategoryBusiness, "The delegation is revoked.",
		"Create a delegation, then use it to order or to create an access token.")
	CodeDelegationExpired = newCode("BCK.X402.0021", 402, CategoryBusiness, "The delegation has expired.",
		"Create a delegation, then use it to order or to create an access token.")
	CodeDelegationExhausted = newCode("BCK.X402.0022", 402, CategoryBusiness, "The delegation has reached its limit.",
		"Create a delegation, then use it to order or to create an access token.")
	CodeDelegationInsufficient = newCode("BCK.X402.0023", 402, CategoryBusiness, "The remaining budget of the delegation is too small for the order.",
		"Create a delegation with a higher limit, then use it to order or to create an access token.")
	CodePermissionUnknown = newCode("BCK.X402.0024", 402, CategoryBusiness, "The permission of this access token does not exist.",
		"Create a new access token with POST /api/v1/x402/permissions.")
	CodePermissionRevoked = newCode("BCK.X402.0025", 402, CategoryBusiness, "The access token is revoked.",
		"Create a new access token with POST /api/v1/x402/permissions.")
	CodePermissionExpired = newCode("BCK.X402.0026", 402, CategoryBusiness, "The access token has expired.",
		"Create a new access token with POST /api/v1/x402/permissions.")
	CodePaymentMethodUnusable = newCode("BCK.X402.0027", 402, CategoryBusiness, "The payment method cannot be used.",
		"Choose another payment method from GET /api/v1/payment-methods.")
	CodePaymentMethodRevoked = newCode("BCK.X402.0028", 402, CategoryBusiness, "The payment method is revoked.",
		"Choose another payment method from GET /api/v1/payment-methods.")
	CodePaymentMethodNotAllowed = newCode("BCK.X402.0029", 402, CategoryBusiness, "This API key is not allowed to use the payment method.",
		"Use an API key that is allowed to use it, or choose another payment method.")
	CodePaymentRequired = newCode("BCK.X402.0030", 402, CategoryBusiness, "Payment is required: the access token, or data that its scheme needs, is missing.",
		"Create an access token with POST /api/v1/x402/permissions and send it in payment-signature.")
	CodeUnsupportedScheme = newCode("BCK.X402.0034", 402, CategoryBusiness, "The scheme, network, or currency is not supported.",
		"Use a scheme and network that GET /api/v1/x402/supported lists, and a delegation in the currency of the plan.")
	CodeRedemptionLimit = newCode("BCK.X402.0901", 402, CategoryBusiness, "The access token has reached its redemption limit.",
		"Create a new access token with a higher redemptionLimit.")
	CodeOrderLimit = newCode("BCK.X402.0902", 402, CategoryBusiness, "The access token has reached its order limit.",
		"Create a new access token with a higher orderLimit, or order the plan yourself.")
	CodeReleaseOfSettled = newCode("BCK.X402.0903", 409, CategoryBusiness, "A settled request cannot be released.",
		"Read the settlement with GET /api/v1/x402/settlements/{agentRequestId}.")
	CodeRequestUsed = newCode("BCK.X402.0904", 402, CategoryBusiness, "A request with this nonce or payment identifier is in progress or has already ended.",
		"Send a new nonce or payment identifier, or repeat the settle call of this request.")
	CodeHoldExpired = newCode("BCK.X402.0905", 402, CategoryBusiness, "The hold has lapsed and can no longer be settled.",
		"Verify again with a new access token.")
	CodeSettleConflict = newCode("BCK.X402.0906", 409, CategoryBusiness, "This agentRequestId was already used with different content.",
		"Repeat the first settle call unchanged, or use a new agentRequestId.")
	CodeTooManyHolds = newCode("BCK.X402.0907", 429, CategoryBusiness, "There are too many open holds for this access token or subscriber.",
		"Settle or release open requests, or wait until their holds lapse.")
	CodeAmountOutOfRange = newCode("BCK.X402.0908", 400, CategoryValidation, "The amount exceeds the hold or is out of range.",
		"Send an amount within the bounds of the plan and at most the held amount.")
	CodeSettlementNotFound = newCode("BCK.X402.0909", 404, CategoryBusiness, "No hold or settlement has this id.",
		"Check the id, and use an API key of the plan's owner or of the subscriber.")
	CodeBodyDialect = newCode("BCK.X402.0910", 400, CategoryValidation, "The body must contain exactly one of x402AccessToken and paymentPayload.",
		"Send x402AccessToken with paymentRequired, or paymentPayload with paymentRequirements.")
	CodePlanPeriodOver = newCode("BCK.X402.0911", 402, CategoryBusiness, "The period of the time plan has ended.",
		"Order the plan again.")
	CodeAgentUnlisted = newCode("BCK.X402.0912", 403, CategoryBusiness, "The agent is unlisted.",
		"Ask the builder to list the agent again.")
	CodeSettlementGone = newCode("BCK.X402.0913", 404, CategoryBusiness, "The request was removed at the end of its retention period.",
		"If the request was settled, its ledger entry remains. Read the balance, or ask the operator for the archive.")
	CodeSettlementPending = retryableCode("BCK.X402.0914", 503, CategoryIntegration, "The outcome is not known yet; repeat the same call with the same id.",
		"Retry the same call with the same agentRequestId after the number of seconds in Retry-After.")
	CodeHoldOver = newCode("BCK.X402.0916", 409, CategoryBusiness, "The hold is no longer open, so it cannot be renewed.",
		"Read the outcome of the request with GET /api/v1/x402/settlements/{agentRequestId}.")
	CodeBadX402Version = newCode("BCK.X402.0915", 400, CategoryValidation, "x402Version must be 2.",
		"Send x402Version 2.")
	CodeDeprecatedForm = newCode("BCK.X402.0920", 200, CategoryBusiness, "The request uses a deprecated form.",
		"Create the delegation with POST /api/v1/delegation/create and send its delegationId.")
	CodePaymentMethodNotFound = newCode("BCK.DELEGATION.0001", 404, CategoryBusiness, "You have no payment method with this id.",
		"List your payment methods with GET /api/v1/payment-methods.")
	CodeUnknownDelegation = newCode("BCK.DELEGATION.0002", 404, CategoryBusiness, "You have no delegation with this id.",
		"List your delegations with GET /api/v1/delegation.")
	CodeBadProvider = newCode("BCK.DELEGATION.0003", 400, CategoryValidation, "The provider is unknown.",
		"Send erc4337 or stripe.")
	CodeDelegationIncomplete = newCode("BCK.DELEGATION.0004", 400, CategoryValidation, "A required member of the delegation is missing.",
		"Send the members named in params.errors.")
	CodeProviderMismatch = newCode("BCK.DELEGATION.0007", 400, CategoryBusiness, "The provider does not match the stored payment method.",
		"Send the provider of the payment method, or use another payment method.")
	CodeDelegationFrozen = newCode("BCK.DELEGATION.0905", 402, CategoryBusiness, "The delegation is frozen.",
		"The owner can unfreeze the delegation, or create another delegation with a working card.")
	CodeChainUnreachable = retryableCode("BCK.CHAIN.0001", 503, CategoryIntegration, "The chain cannot be reached, so crypto plans cannot be ordered now.",
		"Retry after the number of seconds in Retry-After. Until then, choose a free plan or ask the builder to mint credits.")
	CodeChainContracts = retryableCode("BCK.CHAIN.0002", 503, CategoryIntegration, "The contracts on the chain do not match the configuration of this service.",
		"Ask the operator to correct the configuration of the chain.")
	CodeChainBalance = newCode("BCK.CHAIN.0003", 402, CategoryBusiness, "The balance of the paying account on the chain is too low.",
		"Send the missing amount to the address in params, then retry.")
	CodeChainOrderConflict = newCode("BCK.CHAIN.0005", 409, CategoryBusiness, "The order was already signed with different content.",
		"Read the order, or create another order with a new id.")
	CodeChainFailed = newCode("BCK.CHAIN.0006", 502, CategoryIntegration, "The operation on the chain failed unexpectedly.",
		"Read the order before you retry, and report the correlation id to the operator.")
	CodeChainRelayerLow = retryableCode("BCK.CHAIN.0007", 503, CategoryIntegration, "The balance of the relayer is too low.",
		"Retry later: the operator must fund the relayer.")
	CodeChainFeeCap = retryableCode("BCK.CHAIN.0008", 503, CategoryIntegration, "The base fee of the chain is above the limit of this service.",
		"Retry later, when fees are lower.")
	CodeChainToken = newCode("BCK.CHAIN.0009", 400, CategoryValidation, "The operator does not accept this token.",
		"Use a token that the operator accepts; GET / names USDC and EURC.")
	CodeChainNativeDelegation = newCode("BCK.CHAIN.0010", 400, CategoryValidation, "A plan priced in the native token cannot use a delegation in cents.",
		"Order the plan without a delegation.")
	CodeChainForeignCode = newCode("BCK.CHAIN.0011", 409, CategoryBusiness, "The account has contract code that this service does not support.",
		"Use an account without contract code.")
	CodeChainSignature = newCode("BCK.CHAIN.0012", 400, CategoryValidation, "The signature of the delegation is invalid.",
		"Sign the delegation exactly as the API returned it, with the key of its owner.")
	CodeChainPaused = retryableCode("BCK.CHAIN.0013", 503, CategoryIntegration, "The delegation manager is paused.",
		"Retry later.")
	CodeBurnNotMirrored = newCode("BCK.CHAIN.0014", 404, CategoryBusiness, "The burn is unknown or is not mirrored on the chain.",
		"Check the transaction hash. Proofs exist only for plans with onchainMirror.")
	CodeChainSignerCap = retryableCode("BCK.CHAIN.0015", 503, CategoryIntegration, "The signer has reached its spending cap.",
		"Retry later, or ask the operator to raise the cap.")
	CodeCheckoutFailed = newCode("BCK.STRIPE.0002", 400, CategoryIntegration, "The checkout session could not be created.",
		"Check successUrl and cancelUrl, then retry.")
	CodeCheckoutWrongPlan = newCode("BCK.STRIPE.0010", 400, CategoryBusiness, "Checkout is available only for fiat plans.",
		"Use POST /api/v1/protocol/plans/{planId}/order.")
	CodeCardUnreachable = retryableCode("BCK.STRIPE.0023", 503, CategoryIntegration, "The card processor cannot be reached.",
		"Retry after the number of seconds in Retry-After.")
	CodeCardOff = newCode("BCK.STRIPE.0024", 424, CategoryIntegration, "Card payments are not available.",
		"Choose a plan that is not paid by card, or ask the operator to configure card payments.")
	CodeWebhookSignature = newCode("BCK.STRIPE.0901", 400, CategoryAuth, "The webhook signature is invalid or too old.",
		"Send the raw body with the signature that the card processor created for it.")
	CodeCardDeclined = newCode("BCK.STRIPE.0902", 402, CategoryBusiness, "The card was declined.",
		"Use another card, or contact the bank that issued it.")
	CodeCardAuthentication = newCode("BCK.STRIPE.0903", 402, CategoryBusiness, "The bank requires the cardholder to confirm the payment.",
		"Open checkoutUrl in a browser. The page creates a new order, and the cardholder pays for it there.")
	CodeRefundRefused = newCode("BCK.STRIPE.0904", 409, CategoryBusiness, "The order cannot be refunded.",
		"Read the order: refundedCents and disputed show how much can still be refunded.")
	CodeWebhookNotFound = newCode("BCK.WEBHOOK.0901", 404, CategoryBusiness, "You have no webhook with this id.",
		"List your webhooks with GET /api/v1/webhooks.")
	CodeWebhookURL = newCode("BCK.WEBHOOK.0902", 400, CategoryValidation, "The webhook URL is not allowed.",
		"Send an https URL whose host has a public address.")
	CodeWebhookTooMany = newCode("BCK.WEBHOOK.0903", 409, CategoryBusiness, "You have too many webhooks.",
		"Delete a webhook that you no longer need.")
	CodeBadRequest = newCode("BCK.HTTP.400", 400, CategoryValidation, "The request is malformed.",
		"Correct the request, or the members that params.errors names. GET /docs describes every body.")
	CodePersonNotFound = newCode("BCK.PEOPLE.0001", 404, CategoryBusiness, "Not found.",
		"List the records of the workspace, or request a new link.")
	CodeLastOwner = newCode("BCK.PEOPLE.0002", 409, CategoryBusiness, "A workspace must have at least one owner.",
		"Make another member an owner first.")
	CodeProofNeeded = newCode("BCK.PEOPLE.0003", 403, CategoryAuth, "You must confirm your identity first.",
		"Sign in again with a passkey, a password, or a wallet, then retry within ten minutes.")
	CodePersonNeeded = newCode("BCK.PEOPLE.0004", 403, CategoryAuth, "This call requires the session of a person.",
		"Sign in as a person with POST /api/v1/session or toll session start. An API key is not accepted.")
	CodeWorkspaceOwes = newCode("BCK.PEOPLE.0005", 409, CategoryBusiness, "The workspace still owes credits to subscribers, or has pending or disputed orders.",
		"Refund the orders, take the credits back, or wait until they are used. Then delete the workspace.")
	CodePasswordsOff = newCode("BCK.PEOPLE.0006", 403, CategoryAuth, "This service does not accept passwords.",
		"Sign in on the pages of this service with a passkey, a wallet, an email code, or an account of the sign-in provider. If you have lost them all, recover your access on /recover.")
	CodeSpendLimit = newCode("BCK.PEOPLE.0007", 402, CategoryBusiness, "The amount exceeds the remainder of your monthly spending limit.",
		"Ask an owner or an admin of the workspace for a higher limit, or wait for the next month (UTC).")
	CodeSpendLimitDelegation = newCode("BCK.PEOPLE.0008", 402, CategoryBusiness, "A member with a spending limit can use only their own delegations.",
		"Create your own delegation. It counts against the limit.")
	CodeSuspended = newCode("BCK.PEOPLE.0009", 403, CategoryBusiness, "The operator of this service has suspended the builder or the plan.",
		"Buy from another builder. If the plan is yours, ask the operator; refunds, exports, and sign-in still work.")
	CodePathNotFound = newCode("BCK.HTTP.404", 404, CategoryValidation, "This path does not exist.",
		"GET /docs lists the paths; API paths begin with /api/v1.")
	CodeMethodNotAllowed = newCode("BCK.HTTP.405", 405, CategoryValidation, "This path does not support this method.",
		"Use a method that the Allow header lists.")
	CodeRequestTimeout = newCode("BCK.HTTP.408", 408, CategoryValidation, "The body arrived too slowly.",
		"Send the whole body at once.")
	CodeGone = newCode("BCK.HTTP.410", 410, CategoryBusiness, "This path is retired.",
		"GET /docs lists the available paths.")
	CodeMPPOff = newCode("BCK.MPP.0002", 501, CategoryBusiness, "The payment protocol MPP is not supported.",
		"Pay with x402: GET /docs lists the available paths.")
	CodeBodyTooLarge = newCode("BCK.HTTP.413", 413, CategoryValidation, "The body is too large.",
		"Send at most 1 MiB.")
	CodeURITooLong = newCode("BCK.HTTP.414", 414, CategoryValidation, "The URL is too long.",
		"Shorten the URL to at most 8 KiB.")
	CodeMediaType = newCode("BCK.HTTP.415", 415, CategoryValidation, "The body must be JSON.",
		"Send uncompressed JSON in UTF-8 with Content-Type: application/json.")
	CodeHeadersTooLarge = newCode("BCK.HTTP.431", 431, CategoryValidation, "The headers are too large.",
		"Send at most 200 header lines with a total of at most 16 KiB.")
	CodeRateLimited = retryableCode("BCK.HTTP.429", 429, CategoryBusiness, "Too many requests.",
		"Wait for the number of seconds in Retry-After, then retry.")
	CodeInternal = newCode("BCK.HTTP.500", 500, CategoryInternal, "An unexpected error occurred.",
		"Report the correlation id to the operator. The call may have been carried out, so check its effect before you retry.")
	CodeUnavailable = retryableCode("BCK.HTTP.503", 503, CategoryInternal, "The service is not ready, is shutting down, or is overloaded.",
		"Retry after the number of seconds in Retry-After.")
)

var (
	codes     []CodeInfo // in the order above
	codeTable = map[Code]CodeInfo{}
)

// newCode adds a row to the table, and returns its code.
func newCode(code Code, status int, category Category, message, hint string) Code {
	return addCode(CodeInfo{Code: code, Status: status, Category: category, Message: message, Hint: hint})
}

// retryableCode is newCode for an error after which the same call may succeed later.
func retryableCode(code Code, status int, category Category, message, hint string) Code {
	return addCode(CodeInfo{Code: code, Status: status, Category: category, Retryable: true, Message: message, Hint: hint})
}

func addCode(row CodeInfo) Code {
	codes = append(codes, row)
	codeTable[row.Code] = row
	return row.Code
}
