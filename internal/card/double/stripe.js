// A stand-in for Stripe.js that can do one thing: show the page of an embedded session in a frame.
(() => {
  const base = document.currentScript.src.replace(/\/dahlia\/stripe\.js.*$/, '');

  const createEmbeddedCheckoutPage = async (options) => {
    const secret = options.clientSecret || await options.fetchClientSecret();
    const frame = document.createElement('iframe');
    frame.src = base + '/c/embed/' + encodeURIComponent(secret);
    frame.title = 'Payment (test: no money moves)';
    frame.style.cssText = 'width: 100%; min-height: 62rem; border: 0';
    return {
      mount: (at) => (typeof at === 'string' ? document.querySelector(at) : at).replaceChildren(frame),
      unmount: () => frame.remove(),
      destroy: () => frame.remove(),
    };
  };

  window.Stripe = () => ({ createEmbeddedCheckoutPage, initEmbeddedCheckout: createEmbeddedCheckoutPage });
})();
