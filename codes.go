package toll

// Codes of errors: the wire code, the HTTP status, the category, the message (one sentence, safe to show), and the hint
// (the next step for the caller). Treat them as constants. A code never changes its meaning. Codes from .0900 up are
// defined by this project; the remaining codes keep the meaning that deployed clients know (wire contract, section 3). No
// code has status 422: the contract answers an invalid body with 400 (decision 6).
var (
	CodeNotAuthenticated = newCode("BCK.AUTH.0002", 401, CategoryAuth, "An API key is needed, and this one is missing, unknown, expired or revoked.",
		"Send Authorization: Bearer with an API key of this service; create another with POST /api/v1/api-keys when yours has ended.")
	CodeForbidden = newCode("BCK.AUTH.0003", 403, CategoryAuth, "The caller may not do this to this record.",
		"Call with an API key of the account that owns the record.")
	CodeBadAuthorization = newCode("BCK.AUTH.0012", 401, CategoryAuth, "The Authorization header is not of the form Bearer <key>.",
		"Send one line, Authorization: Bearer, one space, and the API key with its prefix.")
	CodeWrongWorkspace = newCode("BCK.AUTH.0906", 403, CategoryAuth, "X-Current-Org-Id names another workspace than that of the API key.",
		"Send the id that GET /api/v1/organizations answers, or leave the header out.")
	CodeRightMissing = newCode("BCK.AUTH.0907", 403, CategoryAuth, "The API key lacks the right that this call takes.",
		"params.right names it. Call with an API key that has it; GET /api/v1/api-keys says which rights each has.")
	CodeKeyNotFound = newCode("BCK.APIKEY.0002", 404, CategoryAuth, "The caller has no API key with this id.",
		"Take the id from GET /api/v1/api-keys.")
	CodeKeyAlreadyRevoked = newCode("BCK.APIKEY.0003", 404, CategoryBusiness, "The API key is already revoked.",
		"Nothing is left to do: the key works no more.")
	CodeKeyForeign = newCode("BCK.APIKEY.0004", 401, CategoryAuth, "This is not an API key of this service.",
		"Use an API key that this service issued; an access token belongs in the body or in payment-signature.")
	CodeKeyExpiryPast = newCode("BCK.APIKEY.0010", 400, CategoryValidation, "The expiry of an API key must lie in the future.",
		"Send an expiresAt that lies in the future, or expiresInSecs.")
	CodeKeyMalformed = newCode("BCK.APIKEY.0013", 401, CategoryAuth, "The API key is not a JWT, or lacks sub, jti or o11y.",
		"Copy the whole key, its prefix and colon included.")
	CodeKeyNothingToUpdate = newCode("BCK.APIKEY.0016", 400, CategoryValidation, "The update names no member that can be updated.",
		"Send name, version, or both.")
	CodeKeyWrongEnvironment = newCode("BCK.APIKEY.0901", 401, CategoryAuth, "The API key belongs to another environment.",
		"Use a key of this environment, or call the service that the key was made for.")
	CodeVersionUnknown = newCode("BCK.VERSION.0001", 400, CategoryValidation, "The API version is unknown or out of range.",
		"Send a version that GET /api/v1/meta/versions names, or none.")
	CodeVersionGateFailed = newCode("BCK.VERSION.0002", 500, CategoryInternal, "A version gate could not reshape a body.",
		"Ask for the current version, and report the correlation id to the operator.")
	CodeBadUUID = newCode("BCK.COMMON.0025", 400, CategoryValidation, "A UUID is malformed.",
		"Send the id as it was answered, 8-4-4-4-12 hexadecimal digits.")
	CodeBadID = newCode("BCK.COMMON.0026", 400, CategoryValidation, "An id is not the decimal text of a uint256 above zero.",
		"Send the id as it was answered: decimal digits in a string.")
	CodeExists = newCode("BCK.COMMON.0027", 409, CategoryBusiness, "The same thing exists already.",
		"Read the one that exists, or choose another name.")
	CodeDatabaseUnavailable = retryableCode("BCK.COMMON.0029", 503, CategoryIntegration, "The database is unavailable.",
		"Repeat the call after the seconds in Retry-After.")
	CodeQueryTooLong = newCode("BCK.COMMON.0034", 400, CategoryValidation, "A query parameter is too long.",
		"Shorten the parameter to 4096 bytes.")
	CodeIdempotencyMismatch = newCode("BCK.COMMON.0901", 409, CategoryBusiness, "This Idempotency-Key was used before with another body.",
		"Use a fresh Idempotency-Key for another body.")
	CodeIdempotencyRunning = retryableCode("BCK.COMMON.0902", 409, CategoryBusiness, "A call with this Idempotency-Key is still running.",
		"Repeat the same call with the same Idempotency-Key in a moment.")
	CodeBadAddress = newCode("BCK.COMMON.0903", 400, CategoryValidation, "An address is not 0x and 40 hexadecimal digits.",
		"Send 0x and 40 hexadecimal digits, in any case.")
	CodeBadPage = newCode("BCK.COMMON.0904", 400, CategoryValidation, "A paging or sorting parameter is malformed or out of range.",
		"page starts at 1, pageSize is 1 to 100, sortBy is created, updated or name, sortOrder is asc or desc, and cursor is a nextCursor of an earlier answer.")
	CodeMintNotPositive = newCode("BCK.CREDITS.0001", 400, CategoryBusiness, "The amount to mint must be positive.",
		"Send an amount of 1 or more.")
	CodeInsufficientCredits = newCode("BCK.CREDITS.0003", 402, CategoryBusiness, "There are not enough credits, and no top-up is possible.",
		"Order the plan again, or get an access token with a delegation that can buy credits.")
	CodeCreditsOverflow = newCode("BCK.CREDITS.0901", 400, CategoryValidation, "The balance would exceed 2^63-1 credits.",
		"Mint or order less: a balance holds at most 9223372036854775807 credits.")
	CodeCreditsNotFree = newCode("BCK.CREDITS.0902", 409, CategoryBusiness, "The holder has fewer free credits that were granted without a payment.",
		"params.available says how many you can take back now. Credits of a paid order leave by a refund only; credits on hold become free or spent when their holds end.")
	CodePlanNotFound = newCode("BCK.PROTOCOL.0003", 404, CategoryBusiness, "No plan has this id.",
		"Check the id and the environment of your key.")
	CodeAgentNotFound = newCode("BCK.PROTOCOL.0004", 404, CategoryBusiness, "No agent has this id.",
		"Check the id and the environment of your key.")
	CodeOrderLacksMoney = newCode("BCK.PROTOCOL.0011", 402, CategoryBusiness, "The payer lacks the money for this order.",
		"Fund the paying account, then order again.")
	CodeNotAgentOwner = newCode("BCK.PROTOCOL.0016", 403, CategoryBusiness, "The caller does not own this agent.",
		"Call with an API key of the owner of the agent; GET /api/v1/protocol/agents lists yours.")
	CodeNotPlanOwner = newCode("BCK.PROTOCOL.0017", 403, CategoryBusiness, "The caller does not own this plan.",
		"Call with an API key of the owner of the plan; GET /api/v1/protocol/plans lists yours.")
	CodeAgentListedAlready = newCode("BCK.PROTOCOL.0018", 200, CategoryBusiness, "The agent is in the wanted listing state already.",
		"")
	CodePlanListedAlready = newCode("BCK.PROTOCOL.0019", 200, CategoryBusiness, "The plan is in the wanted listing state already.",
		"")
	CodePlansOfUnknownAgent = newCode("BCK.PROTOCOL.0023", 404, CategoryBusiness, "No agent has this id, so it has no plans.",
		"Check the id and the environment of your key.")
	CodeAgentsOfUnknownPlan = newCode("BCK.PROTOCOL.0024", 404, CategoryBusiness, "No plan has this id, so it has no agents.",
		"Check the id and the environment of your key.")
	CodePlanNotAttached = newCode("BCK.PROTOCOL.0026", 403, CategoryBusiness, "The agent does not have this plan.",
		"Take the plan from GET /api/v1/protocol/agents/{agentId}/plans.")
	CodeEndpointMismatch = newCode("BCK.PROTOCOL.0031", 403, CategoryBusiness, "The url and verb match no endpoint of the agent.",
		"Register the endpoint with the agent, or send the url and verb of one that it has.")
	CodeSubTaskRequestUnknown = newCode("BCK.PROTOCOL.0037", 404, CategoryBusiness, "No agent request has this id.",
		"Send an agentRequestId that verify or settle answered.")
	CodeAmountAndMargin = newCode("BCK.PROTOCOL.0042", 403, CategoryValidation, "Only one of maxAmount and marginPercent may be sent.",
		"Send maxAmount or marginPercent, not both.")
	CodeMarginOnFixedPlan = newCode("BCK.PROTOCOL.0043", 403, CategoryBusiness, "marginPercent needs a plan whose credits per request are dynamic.",
		"Send maxAmount, or use a plan whose credits per request are dynamic.")
	CodeMarginWithoutSubTasks = newCode("BCK.PROTOCOL.0044", 404, CategoryBusiness, "marginPercent needs a recorded sub-task cost, and the request has none.",
		"Record the sub-tasks first with POST /api/v1/protocol/agent-sub-tasks.")
	CodeFiatPriceTooHigh = newCode("BCK.PROTOCOL.0046", 400, CategoryValidation, "A fiat price may be at most 999,999.99.",
		"Lower the price: amounts have 6 decimals, so 999,999.99 is 999999990000.")
	CodeFiatPriceTooLow = newCode("BCK.PROTOCOL.0047", 400, CategoryValidation, "A fiat price must be at least 1.00.",
		"Raise the price: amounts have 6 decimals, so 1.00 is 1000000.")
	CodeFiatPlanOnCryptoRoute = newCode("BCK.PROTOCOL.0050", 400, CategoryBusiness, "A fiat plan is bought by checkout, not by this order route.",
		"Use POST /api/v1/protocol/plans/{planId}/checkout, or name a limit on a card with delegationId.")
	CodeWrongNetwork = newCode("BCK.PROTOCOL.0052", 400, CategoryValidation, "The network is not the one of this environment.",
		"Send the network that GET / names, or none.")
	CodeTrialUsed = newCode("BCK.PROTOCOL.0056", 409, CategoryBusiness, "This address has bought this trial plan before.",
		"Order a plan that is no trial.")
	CodeBadNumber = newCode("BCK.PROTOCOL.0057", 400, CategoryValidation, "A number cannot be taken exactly, or is out of range.",
		"Send a whole number as digits, as a string or a JSON integer, within the range of the member.")
	CodePlanSoldOut = newCode("BCK.PROTOCOL.0901", 409, CategoryBusiness, "The plan has reached its maximum number of orders.",
		"Choose another plan, or ask its owner to raise maxOrders.")
	CodePlanUnlisted = newCode("BCK.PROTOCOL.0902", 409, CategoryBusiness, "The plan is unlisted and takes no new orders.",
		"Choose a plan that is listed; credits that you have keep working.")
	CodeBadCreditsConfig = newCode("BCK.PROTOCOL.0904", 400, CategoryValidation, "The credits configuration contradicts itself.",
		"Correct the member that params.path names.")
	CodeBadPriceConfig = newCode("BCK.PROTOCOL.0905", 400, CategoryValidation, "The price configuration contradicts itself.",
		"Correct the member that params.path names.")
	CodeNonceConflict = newCode("BCK.PROTOCOL.0906", 409, CategoryBusiness, "This registration nonce was used before with another body.",
		"Use another nonce, or send the body of the first registration.")
	CodeOrderNotFound = newCode("BCK.PROTOCOL.0908", 404, CategoryBusiness, "No order has this id.",
		"Take the id from the answer to the order, and call as its subscriber or as the owner of the plan.")
	CodePlanTermsFixed = newCode("BCK.PROTOCOL.0909", 409, CategoryBusiness, "Price and credits of a registered plan cannot be changed.",
		"Leave the member that params.path names out, and register another plan for other terms.")
	CodeRecordChanged = newCode("BCK.PROTOCOL.0910", 409, CategoryBusiness, "The record has another version than the change expects.",
		"Read the record again, and repeat the change on what it is now, with its version.")
	CodePaymentAgentNotFound = newCode("BCK.X402.0001", 404, CategoryBusiness, "The agent named in the payment does not exist.",
		"Check extra.agentId of the payment requirements.")
	CodePaymentPlanNotFound = newCode("BCK.X402.0002", 404, CategoryBusiness, "The plan named in the payment does not exist.",
		"Check the planId of the payment requirements and the environment of your key.")
	CodeAgentMismatch = newCode("BCK.X402.0003", 400, CategoryBusiness, "The plan is not attached to the agent, or the access token is for another agent.",
		"Attach the plan to the agent, or get an access token for this agent.")
	CodeTokenSignature = newCode("BCK.X402.0005", 402, CategoryAuth, "The access token does not verify: signature, issuer, audience or an inner contradiction.",
		"Get a new access token with POST /api/v1/x402/permissions.")
	CodeTopUpRefused = newCode("BCK.X402.0008", 402, CategoryBusiness, "The payment rail refused the automatic top-up.",
		"Fund the paying account or use another delegation, then try again.")
	CodeTokenUndecodable = newCode("BCK.X402.0010", 400, CategoryValidation, "The access token is in none of the three accepted forms.",
		"Send the accessToken as POST /api/v1/x402/permissions answered it.")
	CodeBadRequirements = newCode("BCK.X402.0012", 400, CategoryBusiness, "The payment requirements cannot be used.",
		"Send an absolute resource.url, and entries of accepts that this service offers.")
	CodePlanMismatch = newCode("BCK.X402.0013", 400, CategoryBusiness, "No entry of accepts fits the access token.",
		"Get an access token for a plan, scheme and network that accepts names.")
	CodeDelegationPlanMismatch = newCode("BCK.X402.0014", 400, CategoryBusiness, "The delegation is bound to another plan.",
		"Use a delegation for this plan, or one that is bound to none.")
	CodePermissionNotFound = newCode("BCK.X402.0015", 404, CategoryBusiness, "The caller has no permission with this hash.",
		"Take the hash from GET /api/v1/x402/permissions.")
	CodePermissionAlreadyRevoked = newCode("BCK.X402.0016", 400, CategoryBusiness, "The permission is already revoked.",
		"Nothing is left to do: the access token works no more.")
	CodeDelegationNotFound = newCode("BCK.X402.0019", 402, CategoryBusiness, "The delegation does not exist.",
		"Create a delegation, and order with it or get an access token with it.")
	CodeDelegationRevoked = newCode("BCK.X402.0020", 402, CategoryBusiness, "The delegation is revoked.",
		"Create a delegation, and order with it or get an access token with it.")
	CodeDelegationExpired = newCode("BCK.X402.0021", 402, CategoryBusiness, "The delegation has expired.",
		"Create a delegation, and order with it or get an access token with it.")
	CodeDelegationExhausted = newCode("BCK.X402.0022", 402, CategoryBusiness, "The delegation is used up.",
		"Create a delegation, and order with it or get an access token with it.")
	CodeDelegationInsufficient = newCode("BCK.X402.0023", 402, CategoryBusiness, "The delegation is too small for the order.",
		"Create a delegation with a higher limit, and order with it or get an access token with it.")
	CodePermissionUnknown = newCode("BCK.X402.0024", 402, CategoryBusiness, "The access token belongs to no known permission.",
		"Get a new access token with POST /api/v1/x402/permissions.")
	CodePermissionRevoked = newCode("BCK.X402.0025", 402, CategoryBusiness, "The access token is revoked.",
		"Get a new access token with POST /api/v1/x402/permissions.")
	CodePermissionExpired = newCode("BCK.X402.0026", 402, CategoryBusiness, "The access token has expired.",
		"Get a new access token with POST /api/v1/x402/permissions.")
	CodePaymentMethodUnusable = newCode("BCK.X402.0027", 402, CategoryBusiness, "The payment method cannot be used.",
		"Choose another payment method with GET /api/v1/payment-methods.")
	CodePaymentMethodRevoked = newCode("BCK.X402.0028", 402, CategoryBusiness, "The payment method is revoked.",
		"Choose another payment method with GET /api/v1/payment-methods.")
	CodePaymentMethodNotAllowed = newCode("BCK.X402.0029", 402, CategoryBusiness, "The payment method is not allowed for this API key.",
		"Use an API key that the payment method allows, or another payment method.")
	CodePaymentRequired = newCode("BCK.X402.0030", 402, CategoryBusiness, "A payment is required: an access token, or what its scheme needs, is missing.",
		"Get an access token with POST /api/v1/x402/permissions and send it in payment-signature.")
	CodeUnsupportedScheme = newCode("BCK.X402.0034", 402, CategoryBusiness, "The scheme, network or currency is not served here.",
		"Use a scheme and network that GET /api/v1/x402/supported names, and a delegation in the currency of the plan.")
	CodeRedemptionLimit = newCode("BCK.X402.0901", 402, CategoryBusiness, "The redemption limit of the access token is reached.",
		"Get a new access token with a higher redemptionLimit.")
	CodeOrderLimit = newCode("BCK.X402.0902", 402, CategoryBusiness, "The order limit of the access token is reached.",
		"Get a new access token with a higher orderLimit, or order the plan yourself.")
	CodeReleaseOfSettled = newCode("BCK.X402.0903", 409, CategoryBusiness, "A settled request cannot be released.",
		"Read the settlement with GET /api/v1/x402/settlements/{agentRequestId}.")
	CodeRequestUsed = newCode("BCK.X402.0904", 402, CategoryBusiness, "This request is in flight or used.",
		"Send a fresh nonce or payment identifier, or repeat the settle of this request.")
	CodeHoldExpired = newCode("BCK.X402.0905", 402, CategoryBusiness, "The hold has lapsed and cannot be settled any more.",
		"Verify again with a new access token.")
	CodeSettleConflict = newCode("BCK.X402.0906", 409, CategoryBusiness, "This agentRequestId was used before with other content.",
		"Repeat the first settle unchanged, or use a fresh agentRequestId.")
	CodeTooManyHolds = newCode("BCK.X402.0907", 429, CategoryBusiness, "There are too many open holds for this access token or account.",
		"Settle or release open requests, or wait until their holds lapse.")
	CodeAmountOutOfRange = newCode("BCK.X402.0908", 400, CategoryValidation, "The amount is above what was held, or out of range.",
		"Send an amount within the bounds of the plan, and at most what is held.")
	CodeSettlementNotFound = newCode("BCK.X402.0909", 404, CategoryBusiness, "No hold or settlement has this id.",
		"Check the id, and call as the owner of the plan or as its subscriber.")
	CodeBodyDialect = newCode("BCK.X402.0910", 400, CategoryValidation, "The body needs exactly one of x402AccessToken and paymentPayload.",
		"Send x402AccessToken with paymentRequired, or paymentPayload with paymentRequirements.")
	CodePlanPeriodOver = newCode("BCK.X402.0911", 402, CategoryBusiness, "The period of the time plan is over.",
		"Order the plan again.")
	CodeAgentUnlisted = newCode("BCK.X402.0912", 403, CategoryBusiness, "The agent is unlisted.",
		"Ask the owner of the agent to list it again.")
	CodeSettlementGone = newCode("BCK.X402.0913", 404, CategoryBusiness, "The request was removed after its time.",
		"The entry of a settlement stays: read the balance, or ask the operator for the archive.")
	CodeSettlementPending = retryableCode("BCK.X402.0914", 503, CategoryIntegration, "The outcome is not known yet; repeat the same call with the same id.",
		"Repeat the same call with the same agentRequestId after the seconds in Retry-After.")
	CodeHoldOver = newCode("BCK.X402.0916", 409, CategoryBusiness, "This hold is not open any more, so it cannot be renewed.",
		"Read what became of the request with GET /api/v1/x402/settlements/{agentRequestId}.")
	CodeBadX402Version = newCode("BCK.X402.0915", 400, CategoryValidation, "x402Version must be 2.",
		"Send x402Version 2.")
	CodeDeprecatedForm = newCode("BCK.X402.0920", 200, CategoryBusiness, "A deprecated form was used.",
		"Create the delegation with POST /api/v1/delegation/create and send its delegationId.")
	CodePaymentMethodNotFound = newCode("BCK.DELEGATION.0001", 404, CategoryBusiness, "The caller has no payment method with this id.",
		"Take the id from GET /api/v1/payment-methods.")
	CodeUnknownDelegation = newCode("BCK.DELEGATION.0002", 404, CategoryBusiness, "The caller has no delegation with this id.",
		"Take the id from GET /api/v1/delegation.")
	CodeBadProvider = newCode("BCK.DELEGATION.0003", 400, CategoryValidation, "The provider is unknown.",
		"Send erc4337 or stripe.")
	CodeDelegationIncomplete = newCode("BCK.DELEGATION.0004", 400, CategoryValidation, "A required member of the delegation is missing.",
		"Send the members that params.errors names.")
	CodeProviderMismatch = newCode("BCK.DELEGATION.0007", 400, CategoryBusiness, "The provider does not fit the stored payment method.",
		"Send the provider of the payment method, or another payment method.")
	CodeDelegationFrozen = newCode("BCK.DELEGATION.0905", 402, CategoryBusiness, "The delegation is frozen.",
		"Its owner unfreezes it, or makes another one with a card that works.")
	CodeChainUnreachable = retryableCode("BCK.CHAIN.0001", 503, CategoryIntegration, "No chain endpoint is available, so crypto plans cannot be ordered now.",
		"Choose a free plan, or ask the owner of the plan to mint credits; try again after the seconds in Retry-After.")
	CodeChainContracts = retryableCode("BCK.CHAIN.0002", 503, CategoryIntegration, "The contracts on the chain do not match.",
		"Ask the operator: the chain is not set up as this service expects.")
	CodeChainBalance = newCode("BCK.CHAIN.0003", 402, CategoryBusiness, "The balance of the account on the chain is too low.",
		"Send the missing amount to the address in params, then try again.")
	CodeChainOrderConflict = newCode("BCK.CHAIN.0005", 409, CategoryBusiness, "The order was signed before with other content.",
		"Read the order; a new one needs a new id.")
	CodeChainFailed = newCode("BCK.CHAIN.0006", 502, CategoryIntegration, "The operation on the chain failed for an unexpected reason.",
		"Read the order before you repeat it, and report the correlation id to the operator.")
	CodeChainRelayerLow = retryableCode("BCK.CHAIN.0007", 503, CategoryIntegration, "The relayer's balance is too low.",
		"Try again later: the operator has to fund the relayer.")
	CodeChainFeeCap = retryableCode("BCK.CHAIN.0008", 503, CategoryIntegration, "The base fee is above the cap.",
		"Try again later, when fees are lower.")
	CodeChainToken = newCode("BCK.CHAIN.0009", 400, CategoryValidation, "The token is not on the operator's list.",
		"Use a token that the operator accepts; GET / names USDC and EURC.")
	CodeChainNativeDelegation = newCode("BCK.CHAIN.0010", 400, CategoryValidation, "A plan priced in the native token cannot use a delegation in cents.",
		"Order the plan without a delegation.")
	CodeChainForeignCode = newCode("BCK.CHAIN.0011", 409, CategoryBusiness, "The account carries foreign code.",
		"Use an account without code of its own.")
	CodeChainSignature = newCode("BCK.CHAIN.0012", 400, CategoryValidation, "The signature of the delegation does not verify.",
		"Sign the delegation as it was answered, with the key of its owner.")
	CodeChainPaused = retryableCode("BCK.CHAIN.0013", 503, CategoryIntegration, "The delegation manager is paused.",
		"Try again later.")
	CodeBurnNotMirrored = newCode("BCK.CHAIN.0014", 404, CategoryBusiness, "The burn is unknown or not mirrored.",
		"Check the transaction; only plans with onchainMirror have proofs.")
	CodeChainSignerCap = retryableCode("BCK.CHAIN.0015", 503, CategoryIntegration, "The signer has reached its cap.",
		"Try again later, or ask the operator to raise the cap.")
	CodeCheckoutFailed = newCode("BCK.STRIPE.0002", 400, CategoryIntegration, "The checkout session could not be made.",
		"Check successUrl and cancelUrl, then try again.")
	CodeCheckoutWrongPlan = newCode("BCK.STRIPE.0010", 400, CategoryBusiness, "Only a fiat plan can be bought by checkout.",
		"Use POST /api/v1/protocol/plans/{planId}/order.")
	CodeCardUnreachable = retryableCode("BCK.STRIPE.0023", 503, CategoryIntegration, "The card processor is not reachable.",
		"Try again after the seconds in Retry-After.")
	CodeCardOff = newCode("BCK.STRIPE.0024", 424, CategoryIntegration, "Card payments are not configured here.",
		"Choose a plan that is not paid by card, or ask the operator to configure cards.")
	CodeWebhookSignature = newCode("BCK.STRIPE.0901", 400, CategoryAuth, "The webhook signature is wrong or too old.",
		"Send the raw body with the signature that the processor made for it.")
	CodeCardDeclined = newCode("BCK.STRIPE.0902", 402, CategoryBusiness, "The card was declined.",
		"Use another card, or ask the bank that issued this one.")
	CodeCardAuthentication = newCode("BCK.STRIPE.0903", 402, CategoryBusiness, "The bank wants the owner of the card to confirm the payment.",
		"Open checkoutUrl in a browser: it makes a new order, which its owner pays there.")
	CodeRefundRefused = newCode("BCK.STRIPE.0904", 409, CategoryBusiness, "The order cannot be refunded.",
		"Read the order: refundedCents and disputed say what is left to refund.")
	CodeWebhookNotFound = newCode("BCK.WEBHOOK.0901", 404, CategoryBusiness, "The caller has no webhook with this id.",
		"Take the id from GET /api/v1/webhooks.")
	CodeWebhookURL = newCode("BCK.WEBHOOK.0902", 400, CategoryValidation, "The webhook url is not allowed.",
		"Send an https url whose host has a public address.")
	CodeWebhookTooMany = newCode("BCK.WEBHOOK.0903", 409, CategoryBusiness, "There are too many webhooks.",
		"Delete a webhook that you no longer need.")
	CodeBadRequest = newCode("BCK.HTTP.400", 400, CategoryValidation, "The request is malformed.",
		"Correct the members that params.errors names; GET /docs describes every body.")
	CodePersonNotFound = newCode("BCK.PEOPLE.0001", 404, CategoryBusiness, "No member, invitation, session, credential or link is known by this.",
		"List those of the workspace, or ask for a new link.")
	CodeLastOwner = newCode("BCK.PEOPLE.0002", 409, CategoryBusiness, "A workspace keeps one owner at least.",
		"Make another member an owner first.")
	CodeProofNeeded = newCode("BCK.PEOPLE.0003", 403, CategoryAuth, "The person has to prove a credential first.",
		"Sign in again with a passkey, a password or a wallet, then repeat this within ten minutes.")
	CodePersonNeeded = newCode("BCK.PEOPLE.0004", 403, CategoryAuth, "This takes the session of a person.",
		"Sign in as a person with POST /api/v1/session or toll session start; an API key does not do this.")
	CodeWorkspaceOwes = newCode("BCK.PEOPLE.0005", 409, CategoryBusiness, "The workspace owes credits, or money of its orders is under way.",
		"Refund the orders, take the credits back, or wait until they are used; then delete it.")
	CodePasswordsOff = newCode("BCK.PEOPLE.0006", 403, CategoryAuth, "This service takes no passwords.",
		"Sign in on its pages with a passkey, a wallet, a code by mail or an account of the provider; who has none of them recovers on /recover.")
	CodeSpendLimit = newCode("BCK.PEOPLE.0007", 402, CategoryBusiness, "It is more than the spending limit of the member leaves this month.",
		"Ask an owner or an admin of the workspace for a higher limit, or wait for the next month (UTC).")
	CodeSpendLimitDelegation = newCode("BCK.PEOPLE.0008", 402, CategoryBusiness, "A member with a spending limit uses only delegations that they made.",
		"Make a delegation of your own, which counts against the limit.")
	CodeSuspended = newCode("BCK.PEOPLE.0009", 403, CategoryBusiness, "The operator of this service has suspended the seller or the plan.",
		"Buy from another seller. If the plan is yours, ask the operator; refunds, exports and sign-in still work.")
	CodePathNotFound = newCode("BCK.HTTP.404", 404, CategoryValidation, "No such path.",
		"GET /docs lists the paths; those of the API begin with /api/v1.")
	CodeMethodNotAllowed = newCode("BCK.HTTP.405", 405, CategoryValidation, "This path does not take this method.",
		"Use a method that the Allow header names.")
	CodeRequestTimeout = newCode("BCK.HTTP.408", 408, CategoryValidation, "The body arrived too slowly.",
		"Send the whole body at once.")
	CodeGone = newCode("BCK.HTTP.410", 410, CategoryBusiness, "This path is retired.",
		"GET /docs lists the paths that are served.")
	CodeMPPOff = newCode("BCK.MPP.0002", 501, CategoryBusiness, "The payment protocol MPP is not served here.",
		"Pay by x402: GET /docs lists the paths that are served.")
	CodeBodyTooLarge = newCode("BCK.HTTP.413", 413, CategoryValidation, "The body is too large.",
		"Send at most 1 MiB.")
	CodeURITooLong = newCode("BCK.HTTP.414", 414, CategoryValidation, "The URL is too long.",
		"Shorten the URL to 8 KiB.")
	CodeMediaType = newCode("BCK.HTTP.415", 415, CategoryValidation, "The body must be JSON.",
		"Send uncompressed JSON in UTF-8 with Content-Type: application/json.")
	CodeHeadersTooLarge = newCode("BCK.HTTP.431", 431, CategoryValidation, "The headers are too large.",
		"Send at most 200 header lines and 16 KiB of them.")
	CodeRateLimited = retryableCode("BCK.HTTP.429", 429, CategoryBusiness, "Too many requests.",
		"Wait for the seconds in Retry-After, then repeat the call.")
	CodeInternal = newCode("BCK.HTTP.500", 500, CategoryInternal, "An unexpected failure happened.",
		"Report the correlation id to the operator. Whether the call was carried out is not known: read what it was to change before calling again.")
	CodeUnavailable = retryableCode("BCK.HTTP.503", 503, CategoryInternal, "The service is not ready, shutting down or overloaded.",
		"Repeat the call after the seconds in Retry-After.")
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
